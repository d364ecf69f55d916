// One planner a kind of schedule. Each writes the intervals of one round's values.
#pragma once

#include "csrc/schedule/segments.h"

namespace recoup::detail {

// sqrt(n) segments of n ops that make something (Chen et al., 2016, section 4.1).
void plan_sqrt_n(const ScheduleInput& input, const Round& round, Schedule& schedule);
// Segments in segments, two at a time: O(log n) checkpoints (Chen et al., 2016, section 4.3).
void plan_recursive(const ScheduleInput& input, const Round& round, Schedule& schedule);
// Greedy segments of at most B bytes, with a search over B (memonger; Chen et al., 2016, algorithm
// 3): of those that fit the budget the one that recomputes least, else the one that takes least.
void plan_budgeted(const ScheduleInput& input, const Round& round, Schedule& schedule);
// The optimal persistent schedule of a chain for the budget, by dynamic programming (Beaumont et
// al., 2019). Segments at thin places stand for the chain's stages.
void plan_rotor(const ScheduleInput& input, const Round& round, Schedule& schedule);
// By kind of op: what is cheap to make is dropped and made again. `kind` is one of kMirror,
// kSuperneuronsSpeed, kSuperneuronsMemory.
void plan_by_kind(ScheduleKind kind, const ScheduleInput& input, const Round& round,
                  Schedule& schedule);

// Bytes that are live at the turn whatever is dropped.
std::int64_t undroppable_bytes(const TraceGraph& graph, const Round& round);

}  // namespace recoup::detail
