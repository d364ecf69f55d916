// BlockFollower: where a running step is in the plan of its blocks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "csrc/engine/base/victim_plan.h"
#include "csrc/engine/program/engine.h"
#include "csrc/steps/follow/eviction_list.h"
#include "csrc/steps/place/block_plan.h"

namespace recoup::detail {

class BlockFollower {
 public:
  // Number of ops at the start of a step in which blocks from before it are brought to their
  // places.
  static constexpr std::uint32_t kFirstOps = 8;

  void begin_step() { *this = BlockFollower(); }

  // A block of `size` bytes is about to be allocated. Returns its planned place: that of the next
  // planned block of this size, among those for the running op. nullopt: there is none.
  [[nodiscard]] std::optional<PlannedPlace> begin_block(const BlockPlan& plan, const StepLog& step,
                                                        Bytes size);
  // The next candidate on the list that is due before this block.
  [[nodiscard]] PlannedVictim victim(const EvictionList& list, const StepLog& step);
  // The next fetch that is due and whose value is still spilled.
  [[nodiscard]] std::optional<PlannedFetch> begin_fetch(const BlockPlan& plan, const StepLog& step,
                                                        const Engine& engine);
  void end_fetch(bool begun) {
    if (missing_.empty()) {
      fetch_ += begun ? 1 : 0;
    } else if (begun) {
      missing_.pop_back();
    } else {  // its place is taken: the next one is tried
      std::rotate(missing_.begin(), missing_.end() - 1, missing_.end());
    }
  }
  // Whether a value that the plan has in a block when the step begins is spilled.
  [[nodiscard]] bool misses() const { return !missing_.empty(); }
  // What brings the pool's blocks to where the plan says that they lie when the step begins. `step`
  // has done nothing yet, or only its first ops. Spilled values for which the plan has a block then
  // are the next ones that begin_fetch() returns.
  [[nodiscard]] Arrangement arrangement(const BlockPlan& plan, const StepLog& step,
                                        const Engine& engine);
  // A block was not allocated at its planned offset.
  void count_elsewhere() { ++elsewhere_; }
  // Number of blocks so far that were not allocated as planned.
  [[nodiscard]] std::uint32_t elsewhere() const { return elsewhere_; }

 private:
  [[nodiscard]] bool has_fetched(const BlockPlan& plan, const std::optional<Made>& value) const;

  // Values that are spilled when the step begins, and for which the plan has a block then.
  std::vector<BlockPlan::Fetch> missing_;
  std::vector<Made> extra_;   // values that are resident then, and should not be
  bool begun_ = false;        // the missing and the extra values are known
  std::size_t entry_ = 0;     // index of the first entry that may be next
  std::size_t fetch_ = 0;     // index of the first fetch that has not begun
  std::size_t eviction_ = 0;  // index of the first entry of the list that has not been looked at
  std::size_t due_ = 0;       // number of entries of the list before the block
  std::uint32_t elsewhere_ = 0;
};

}  // namespace recoup::detail
