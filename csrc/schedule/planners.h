// One planner per kind of schedule. Each writes the intervals of the values of one round.
#pragma once

#include "csrc/schedule/segments.h"

namespace recoup::detail {

// About sqrt(n) segments of n ops that make something (Chen et al., 2016, section 4.1).
void plan_sqrt_n(const ScheduleInput& input, const Round& round, Schedule& schedule);
// Nested segments, two at a time: O(log n) checkpoints (Chen et al., 2016, section 4.3).
void plan_recursive(const ScheduleInput& input, const Round& round, Schedule& schedule);
// Greedy segments of at most B bytes, with a search over B (memonger; Chen et al., 2016, algorithm
// 3). Of the plans that fit the budget the one with the least recomputation is taken; if none fits,
// the one with the lowest peak.
void plan_budgeted(const ScheduleInput& input, const Round& round, Schedule& schedule);
// The optimal persistent schedule of a chain for the budget, by dynamic programming (Beaumont et
// al., 2019). The stages of the chain are segments between bounds that few bytes cross.
void plan_rotor(const ScheduleInput& input, const Round& round, Schedule& schedule);
// By kind of op: values of cheap ops are dropped and recomputed. `kind` is kMirror,
// kSuperneuronsSpeed or kSuperneuronsMemory.
void plan_by_kind(ScheduleKind kind, const ScheduleInput& input, const Round& round,
                  Schedule& schedule);

// Bytes that are live at the turn and cannot be dropped.
std::int64_t undroppable_bytes(const TraceGraph& graph, const Round& round);

}  // namespace recoup::detail
