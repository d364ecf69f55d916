// Schedules that divide a forward pass into segments and restore these one by one.
//
// Note [Segments of a pass]
// A forward pass is cut at `bounds`; segment s is [bounds[s], bounds[s + 1]). State c defines what
// is kept while the backward pass works on segment c: the values that cross certain bounds, which
// are made before and read after the bound (the segment's checkpoints), and everything that the
// backward pass needs of certain segments. In the forward pass the state of the last segment
// applies.
//
//   segments     |  0  |  1  |  2  |      bounds 1 and 2 are crossed; classical checkpointing:
//   state 2      |     x     x  2  |      checkpoints at both bounds, all of segment 2
//   state 1      |     x  1  |
//   state 0      |  0  |
#pragma once

#include <cstdint>
#include <vector>

#include "csrc/schedule/rounds.h"
#include "csrc/schedule/schedule.h"

namespace recoup::detail {

struct SegmentState {
  std::vector<bool> bounds;  // by bound: values that cross it are kept
  std::vector<bool> whole;   // by segment: everything that the backward pass needs of it is kept
};

struct Segmentation {
  std::vector<std::uint32_t> bounds;  // ascending, from round.begin to round.turn + 1
  std::vector<SegmentState> states;   // by segment

  [[nodiscard]] std::size_t segments() const { return bounds.size() - 1; }
};

// Sums over the ops of a forward pass, by position from its first op.
class ForwardPass {
 public:
  ForwardPass(const TraceGraph& graph, const Round& round);

  [[nodiscard]] const Round& round() const { return round_; }
  [[nodiscard]] std::uint32_t op_count() const { return round_.turn + 1 - round_.begin; }
  // Number of ops that make droppable values.
  [[nodiscard]] std::uint32_t making_count() const { return making_; }
  // Bytes of values that ops [from, to) make and the backward pass reads.
  [[nodiscard]] std::int64_t saved(std::uint32_t from, std::uint32_t to) const {
    return saved_[to - round_.begin] - saved_[from - round_.begin];
  }
  [[nodiscard]] std::int64_t cost(std::uint32_t from, std::uint32_t to) const {
    return cost_[to - round_.begin] - cost_[from - round_.begin];
  }
  // Bytes that are made before `bound` and read at or after it by the forward pass.
  [[nodiscard]] std::int64_t crossing(std::uint32_t bound) const {
    return crossing_[bound - round_.begin];
  }
  // The bound in [from, to] that the fewest bytes cross; of equal ones the last.
  [[nodiscard]] std::uint32_t thinnest(std::uint32_t from, std::uint32_t to) const;
  // Bounds of about `count` segments that save about equally many bytes. Each bound is moved to a
  // nearby place that few bytes cross.
  [[nodiscard]] std::vector<std::uint32_t> cut_evenly(std::uint32_t count) const;

 private:
  Round round_;
  std::uint32_t making_ = 0;
  std::vector<std::int64_t> saved_;  // prefix sums
  std::vector<std::int64_t> cost_;
  std::vector<std::int64_t> crossing_;
};

// All bounds are checkpoints, and one segment at a time is whole.
std::vector<SegmentState> checkpoint_states(std::size_t segments);

// Writes the intervals of the round's values into `schedule`, which has an entry for each value.
void add_segments(const TraceGraph& graph, const Round& round, const Segmentation& plan,
                  Schedule& schedule);

}  // namespace recoup::detail
