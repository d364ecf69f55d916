// What a schedule takes of a whole step.
#pragma once

#include "csrc/schedule/schedule.h"

namespace recoup::detail {

inline std::int64_t planned_peak(const TraceGraph& graph, const Schedule& schedule) {
  return PeakOfOps(graph, schedule, 0, static_cast<std::uint32_t>(graph.ops.size()), {}).peak();
}

}  // namespace recoup::detail
