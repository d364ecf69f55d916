#include <algorithm>
#include <numeric>

#include "csrc/schedule/schedule.h"

namespace recoup::detail {
namespace {

// By op: most bytes that one of the replays before it holds beside what is kept then.
std::vector<std::int64_t> passing_bytes(const TraceGraph& graph, const Schedule& schedule) {
  const auto has_bytes = [&](std::uint32_t value, std::uint32_t op) {
    const std::vector<Interval>& kept = schedule.kept[value];
    return kept.empty() || std::any_of(kept.begin(), kept.end(), [op](const Interval& interval) {
             return interval.from <= op && op < interval.to;
           });
  };
  std::vector<std::int64_t> passing(graph.ops.size());
  for (std::size_t i = 0; i < graph.values.size(); ++i) {
    for (std::size_t k = 1; k < schedule.kept[i].size(); ++k) {
      const std::uint32_t op = schedule.kept[i][k].from;
      if (op >= graph.ops.size()) {
        continue;
      }
      const GraphOp& producer = graph.ops[graph.values[i].producer];
      std::int64_t bytes = producer.workspace.count();
      for (const std::vector<std::uint32_t>* values : {&producer.inputs, &producer.outputs}) {
        for (const std::uint32_t value : *values) {
          bytes += has_bytes(value, op) ? 0 : graph.values[value].size.count();
        }
      }
      passing[op] = std::max(passing[op], bytes);
    }
  }
  return passing;
}

}  // namespace

std::int64_t planned_peak(const TraceGraph& graph, const Schedule& schedule) {
  const auto ops = static_cast<std::uint32_t>(graph.ops.size());
  std::vector<std::int64_t> live(ops + std::size_t{1});
  const auto add = [&](std::uint32_t from, std::uint32_t to, Bytes size) {
    if (from < std::min(to, ops)) {
      live[from] += size.count();
      live[std::min(to, ops)] -= size.count();
    }
  };
  for (std::size_t i = 0; i < graph.values.size(); ++i) {
    const GraphValue& value = graph.values[i];
    const std::uint32_t dies = std::max(value.dies, value.born + 1);
    if (schedule.kept[i].empty()) {
      add(value.born, dies, value.size);
    }
    for (const Interval& interval : schedule.kept[i]) {
      const bool first = &interval == schedule.kept[i].data();
      const std::uint32_t to = interval.to == Interval::kOpen ? dies : interval.to;
      add(first ? value.born : interval.from, to, value.size);
    }
  }
  const std::vector<std::int64_t> passing = passing_bytes(graph, schedule);
  std::partial_sum(live.begin(), live.end(), live.begin());
  std::int64_t peak = 0;
  for (std::uint32_t op = 0; op < ops; ++op) {
    peak = std::max(peak, live[op] + std::max(graph.ops[op].workspace.count(), passing[op]));
  }
  return peak;
}

}  // namespace recoup::detail
