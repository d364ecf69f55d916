// Attempts: runs the kernel of an op until it fits in the budget, or until no measure helps.
#pragma once

#include <optional>
#include <vector>

#include "csrc/engine/attempt/op_kernel.h"
#include "csrc/engine/reclaim/handover.h"
#include "csrc/engine/reclaim/room.h"
#include "csrc/engine/state/context.h"
#include "recoup/errors.h"
#include "recoup/options.h"

namespace recoup::detail {

// Note [Attempts]
// ~~~~~~~~~~~~~~~
// A kernel allocates its results and its workspace while it runs. If an allocation does not fit
// although every candidate has been evicted, the kernel fails, and a measure may help the next run:
//
//   compact    the free bytes are in pieces: all blocks slide together, also the operands
//   in place   a result takes the block of an operand: Note [Results in place]
//   page       what does not fit is in paged memory: Note [Paged results]
//
// The measures are tried in this order. A program's op, a simulated op and a replay run through
// this class, so they take the same measures. A further measure is a function of this class.
class Attempts {
 public:
  // All arguments must outlive this object.
  Attempts(const Context& context, Room& room, Handover& handover);

  // Runs the kernel until it ends; nullopt then. Otherwise why the last attempt failed. Throws what
  // the kernel throws. Call it without the engine's lock if the kernel takes that lock.
  [[nodiscard]] std::optional<OutOfBudgetReport> run(OpKernel& kernel) const;

 private:
  // One kernel and what has been tried for it.
  struct Tried {
    OpKernel& kernel;
    Attempt attempt;             // the last one, or the next
    Bytes contiguous{0};         // size of the free range that the last compaction was to make
    bool all_compacted = false;  // the last compaction has freed less, and no candidate is left
  };
  // Each of these prepares the next attempt. False: the measure does not help.
  [[nodiscard]] bool compact(Tried& tried, const OutOfBudgetReport& failure) const;
  [[nodiscard]] bool in_place(Tried& tried, std::optional<Bytes> asked) const;
  [[nodiscard]] bool page(Tried& tried, const OutOfBudgetReport& failure) const;

  [[nodiscard]] bool next(Tried& tried, const OutOfBudgetReport& failure) const;
  [[nodiscard]] Paging::Rules paging_rules() const {
    return {.window = options_.page_window, .everything = aids_.page};
  }

  const Options& options_;
  const TestAids& aids_;
  Room& room_;
  Handover& handover_;
};

}  // namespace recoup::detail
