#include <algorithm>
#include <optional>

#include "csrc/schedule/planners.h"

namespace recoup::detail {
namespace {

// Number of values of B that are tried; each is 3/4 of the previous one.
constexpr int kSizes = 24;

struct Choice {
  Segmentation plan;
  std::int64_t peak = 0;
  std::int64_t cost = 0;  // cost of recomputation
};

// When a segment would save more than `most` bytes, it is cut in its second half, at the bound that
// the fewest bytes cross.
std::vector<std::uint32_t> cut_greedily(const ForwardPass& forward, std::int64_t most) {
  const Round& round = forward.round();
  std::vector<std::uint32_t> bounds{round.begin};
  for (std::uint32_t op = round.begin; op <= round.turn; ++op) {
    const std::uint32_t begin = bounds.back();
    if (op > begin + 1 && forward.saved(begin, op + 1) > most) {
      std::uint32_t half = begin + 1;
      while (half < op && 2 * forward.saved(begin, half) < forward.saved(begin, op)) {
        ++half;
      }
      bounds.push_back(forward.thinnest(half, op));
    }
  }
  bounds.push_back(round.turn + 1);
  return bounds;
}

}  // namespace

void plan_budgeted(const ScheduleInput& input, const Round& round, Schedule& schedule) {
  const ForwardPass forward(input.graph, round);
  const PeakOfOps peak(input.graph, schedule, round.begin, round.end,
                       droppable(input.graph, round));
  std::optional<Choice> best;
  auto most = static_cast<double>(forward.saved(round.begin, round.turn + 1));
  for (int i = 0; i < kSizes; ++i, most *= 0.75) {
    Segmentation plan{.bounds = cut_greedily(forward, static_cast<std::int64_t>(most)),
                      .states = {}};
    if (best && plan.bounds == best->plan.bounds) {
      continue;
    }
    plan.states = checkpoint_states(plan.segments());
    add_segments(input.graph, round, plan, schedule);
    Choice choice{.plan = {}, .peak = peak.peak(), .cost = 0};
    choice.cost = forward.cost(plan.bounds.front(), plan.bounds[plan.bounds.size() - 2]);
    choice.plan = std::move(plan);
    const bool fits = choice.peak <= input.budget.count();
    const bool best_fits = best && best->peak <= input.budget.count();
    const bool better = fits ? !best_fits || choice.cost < best->cost
                             : !best_fits && (!best || choice.peak < best->peak);
    if (better) {
      best = std::move(choice);
    }
  }
  add_segments(input.graph, round, best->plan, schedule);
}

}  // namespace recoup::detail
