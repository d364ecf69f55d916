// A schedule: which values of a training step have their bytes when, decided before the step runs.
//
// Note [Intervals]
// A value is kept at the beginnings of the ops [from, to). Its first interval begins behind its
// producer; each later one asks to get it back before op `from`. Where no interval is, it is
// dropped as soon as the op that made it, used it or replayed through it has ended.
//
//   op      p        a              t            b       c
//           made     last forward   turn         first backward use
//           |--------|              .            |-------|          kept [p+1, a+1) and [b, end)
//
// Values without an interval of their own are none of the schedule's business.
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
  static constexpr std::uint32_t kOpen = 0xffffffff;  // `to`: until the program lets go of it

  std::uint32_t from = 0;
  std::uint32_t to = 0;
  friend bool operator==(const Interval&, const Interval&) = default;
};

// Adds an interval that begins no sooner than the last one ends; joins the two where they touch.
inline void add_interval(std::vector<Interval>& intervals, const Interval& interval) {
  if (!intervals.empty() && interval.from <= intervals.back().to) {
    intervals.back().to = std::max(intervals.back().to, interval.to);
  } else if (interval.from < interval.to) {
    intervals.push_back(interval);
  }
}

// The one that keeps the value at the beginning of the op; null: none does.
inline const Interval* interval_at(const std::vector<Interval>& intervals, std::uint32_t op) {
  const auto found = std::find_if(intervals.begin(), intervals.end(),
                                  [op](const Interval& i) { return i.from <= op && op < i.to; });
  return found == intervals.end() ? nullptr : &*found;
}

struct Schedule {
  std::vector<std::vector<Interval>> kept;  // by value of the graph, ascending and apart
};

struct ScheduleInput {
  const TraceGraph& graph;             // of one step
  std::span<const std::string> names;  // of its ops
  Bytes budget{0};
};

// Most bytes that are live at once when the ops [from, to) run by their schedule, with workspaces
// and with what the last op of each replay of `changing` (ids, ascending) holds beside; what the
// ops before it hold is not counted. Asked again and again while the intervals of `changing`
// change.
class PeakOfOps {
 public:
  PeakOfOps(const TraceGraph& graph, const Schedule& schedule, std::uint32_t from, std::uint32_t to,
            std::vector<std::uint32_t> changing);
  // As `schedule` is by now.
  [[nodiscard]] std::int64_t peak() const;

 private:
  void add(std::uint32_t id, std::vector<std::int64_t>& changes) const;
  // By op: most bytes that the last op of a replay before it holds beside what is kept then.
  [[nodiscard]] std::vector<std::int64_t> passing() const;
  [[nodiscard]] std::int64_t passing(const GraphOp& replayed, std::uint32_t op) const;

  const TraceGraph& graph_;
  const Schedule& schedule_;
  std::uint32_t from_;
  std::uint32_t to_;
  std::vector<std::uint32_t> changing_;
  std::vector<std::int64_t> others_;  // by op: bytes of all other values beyond the op before
};

// `kind` is not kNone.
Schedule plan_schedule(ScheduleKind kind, const ScheduleInput& input);

}  // namespace recoup::detail
