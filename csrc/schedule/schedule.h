// Schedule: decides before a training step when each of its values is resident.
//
// Note [Intervals]
// A value is kept at the beginnings of the ops [from, to). Its first interval begins after its
// producer. Each later interval restores the value before op `from`. Outside of its intervals, a
// value is dropped as soon as the op that made it, used it or replayed through it has ended.
//
//   op      p        a              t            b       c
//           made     last forward   turn         first backward use
//           |--------|              .            |-------|          kept [p+1, a+1) and [b, end)
//
// A schedule does not affect values without an interval.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "csrc/trace/graph.h"
#include "recoup/policy.h"

namespace recoup::detail {

struct Interval {
  static constexpr std::uint32_t kOpen = 0xffffffff;  // as `to`: until the program frees it

  std::uint32_t from = 0;
  std::uint32_t to = 0;
  friend bool operator==(const Interval&, const Interval&) = default;
};

// Adds an interval that does not begin before the last one ends; merges the two if they touch.
inline void add_interval(std::vector<Interval>& intervals, const Interval& interval) {
  if (!intervals.empty() && interval.from <= intervals.back().to) {
    intervals.back().to = std::max(intervals.back().to, interval.to);
  } else if (interval.from < interval.to) {
    intervals.push_back(interval);
  }
}

// The interval that keeps the value at the beginning of the op; null if there is none.
inline const Interval* interval_at(const std::vector<Interval>& intervals, std::uint32_t op) {
  const auto found = std::find_if(intervals.begin(), intervals.end(),
                                  [op](const Interval& i) { return i.from <= op && op < i.to; });
  return found == intervals.end() ? nullptr : &*found;
}

struct Schedule {
  std::vector<std::vector<Interval>> kept;  // by value of the graph, ascending and disjoint
};

struct ScheduleInput {
  const TraceGraph& graph;             // graph of one step
  std::span<const std::string> names;  // names of its ops
  Bytes budget{0};
};

// Peak of live bytes while the ops [from, to) run by a schedule. It includes workspaces, and what
// the last op of each replay of `changing` (ids, ascending) holds. It does not include what the
// earlier ops of a replay hold. Can be evaluated repeatedly while the intervals of `changing`
// change.
class PeakOfOps {
 public:
  PeakOfOps(const TraceGraph& graph, const Schedule& schedule, std::uint32_t from, std::uint32_t to,
            std::vector<std::uint32_t> changing);
  // The peak for the current state of `schedule`.
  [[nodiscard]] std::int64_t peak() const;

 private:
  void add(std::uint32_t id, std::vector<std::int64_t>& changes) const;
  // By op: the most bytes that the last op of a replay before it holds in addition to kept values.
  [[nodiscard]] std::vector<std::int64_t> passing() const;
  [[nodiscard]] std::int64_t passing(const GraphOp& replayed, std::uint32_t op) const;

  const TraceGraph& graph_;
  const Schedule& schedule_;
  std::uint32_t from_;
  std::uint32_t to_;
  std::vector<std::uint32_t> changing_;
  // By op: change of the bytes of all other values relative to the previous op.
  std::vector<std::int64_t> others_;
};

// `kind` must not be kNone.
Schedule plan_schedule(ScheduleKind kind, const ScheduleInput& input);

}  // namespace recoup::detail
