// The peak in bytes of a whole step under a schedule.
#pragma once

#include <numeric>
#include <utility>

#include "csrc/schedule/schedule.h"

namespace recoup::detail {

inline std::int64_t planned_peak(const TraceGraph& graph, const Schedule& schedule) {
  std::vector<std::uint32_t> all(graph.values.size());
  std::iota(all.begin(), all.end(), 0U);
  const auto ops = static_cast<std::uint32_t>(graph.ops.size());
  return PeakOfOps(graph, schedule, 0, ops, std::move(all)).peak();
}

}  // namespace recoup::detail
