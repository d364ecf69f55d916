#include <algorithm>
#include <cmath>

#include "csrc/base/check.h"
#include "csrc/schedule/planners.h"

namespace recoup::detail {
namespace {

// More segments than this gain next to nothing.
constexpr std::uint32_t kMostSegments = 64;
// A segment of fewer ops is not divided.
constexpr std::uint32_t kFewestOps = 4;

void mark_path(SegmentState& state, std::size_t segment, std::size_t segments) {
  std::size_t low = 0;
  std::size_t high = segments;
  while (high - low > 1) {
    const std::size_t middle = (low + high) / 2;
    if (segment >= middle) {
      state.bounds[middle] = true;
      low = middle;
    } else {
      high = middle;
    }
  }
  state.whole[segment] = true;
}

// An evaluation saves nothing for a backward pass, so a schedule gains nothing.
bool saves_anything(const TraceGraph& graph, const Round& round) {
  const std::vector<std::uint32_t> values = droppable(graph, round);
  return std::any_of(values.begin(), values.end(), [&](std::uint32_t id) {
    return use_in(round, graph.values[id]).activation();
  });
}

}  // namespace

std::int64_t undroppable_bytes(const TraceGraph& graph, const Round& round) {
  std::int64_t bytes = 0;
  for (const GraphValue& value : graph.values) {
    const bool live = value.born <= round.turn && value.dies > round.turn;
    bytes += live ? value.size.count() : 0;
  }
  for (const std::uint32_t id : droppable(graph, round)) {
    const GraphValue& value = graph.values[id];
    bytes -= value.dies > round.turn ? value.size.count() : 0;
  }
  return bytes;
}

void plan_sqrt_n(const ScheduleInput& input, const Round& round, Schedule& schedule) {
  const ForwardPass forward(input.graph, round);
  const auto count = static_cast<std::uint32_t>(std::ceil(std::sqrt(forward.making_count())));
  Segmentation plan{.bounds = forward.cut_evenly(std::max(count, 1U)), .states = {}};
  plan.states = checkpoint_states(plan.segments());
  add_segments(input.graph, round, plan, schedule);
}

void plan_recursive(const ScheduleInput& input, const Round& round, Schedule& schedule) {
  const ForwardPass forward(input.graph, round);
  std::uint32_t count = 1;
  while (count < kMostSegments && 2 * count * kFewestOps <= forward.making_count()) {
    count *= 2;
  }
  Segmentation plan{.bounds = forward.cut_evenly(count), .states = {}};
  const std::size_t segments = plan.segments();
  plan.states.assign(segments,
                     {.bounds = std::vector<bool>(segments), .whole = std::vector<bool>(segments)});
  for (std::size_t segment = 0; segment < segments; ++segment) {
    mark_path(plan.states[segment], segment, segments);
  }
  add_segments(input.graph, round, plan, schedule);
}

Schedule plan_schedule(ScheduleKind kind, const ScheduleInput& input) {
  Schedule schedule;
  schedule.kept.resize(input.graph.values.size());
  for (const Round& round : find_rounds(input.graph)) {
    if (!saves_anything(input.graph, round)) {
      continue;
    }
    switch (kind) {
      case ScheduleKind::kSqrtN:
        plan_sqrt_n(input, round, schedule);
        break;
      case ScheduleKind::kRecursive:
        plan_recursive(input, round, schedule);
        break;
      case ScheduleKind::kBudgeted:
        plan_budgeted(input, round, schedule);
        break;
      case ScheduleKind::kRotor:
        plan_rotor(input, round, schedule);
        break;
      case ScheduleKind::kMirror:
      case ScheduleKind::kSuperneuronsSpeed:
      case ScheduleKind::kSuperneuronsMemory:
        plan_by_kind(kind, input, round, schedule);
        break;
      case ScheduleKind::kNone:
        RECOUP_CHECK(false, "a policy without a schedule asks for one");
    }
  }
  return schedule;
}

}  // namespace recoup::detail
