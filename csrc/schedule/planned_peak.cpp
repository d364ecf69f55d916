#include <algorithm>
#include <numeric>

#include "csrc/schedule/schedule.h"

namespace recoup::detail {

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
  std::partial_sum(live.begin(), live.end(), live.begin());
  std::int64_t peak = 0;
  for (std::uint32_t op = 0; op < ops; ++op) {
    peak = std::max(peak, live[op] + graph.ops[op].workspace.count());
  }
  return peak;
}

}  // namespace recoup::detail
