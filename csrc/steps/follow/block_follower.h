// BlockFollower: where a running step is in the plan of its blocks.
#pragma once

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
  void end_fetch(bool begun) { fetch_ += begun ? 1 : 0; }
  // What brings the pool's blocks to where the plan says that they lie when the step begins. `step`
  // has done nothing yet, or only its first ops.
  [[nodiscard]] Arrangement arrangement(const BlockPlan& plan, const StepLog& step,
                                        const Engine& engine) const;
  // A block was not allocated at its planned offset.
  void count_elsewhere() { ++elsewhere_; }
  // Number of blocks so far that were not allocated as planned.
  [[nodiscard]] std::uint32_t elsewhere() const { return elsewhere_; }

 private:
  [[nodiscard]] bool has_fetched(const BlockPlan& plan, const std::optional<Made>& value) const;

  std::size_t entry_ = 0;     // index of the first entry that may be next
  std::size_t fetch_ = 0;     // index of the first fetch that has not begun
  std::size_t eviction_ = 0;  // index of the first entry of the list that has not been looked at
  std::size_t due_ = 0;       // number of entries of the list before the block
  std::uint32_t elsewhere_ = 0;
};

}  // namespace recoup::detail
