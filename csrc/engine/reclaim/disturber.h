// Disturber: what tests switch on, see TestAids. It does nothing when they have not.
#pragma once

#include <cstdint>

#include "csrc/engine/reclaim/evictor.h"
#include "csrc/engine/reclaim/mover.h"
#include "csrc/engine/state/context.h"
#include "csrc/engine/state/out_of_budget.h"

namespace recoup::detail {

class Disturber {
 public:
  // All must outlive it.
  Disturber(const Context& context, Evictor& evictor, Mover& mover,
            const OutOfBudgetReporter& reporter);

  [[nodiscard]] bool active() const { return context_.options.aids.any(); }
  // A block of `size` is about to be taken. Throws OutOfBudget where it shall fail.
  void before_allocation(Bytes size);
  // Throws InjectedFault where it shall fail.
  void before_replay(OpId op);

 private:
  const Context& context_;
  Evictor& evictor_;
  Mover& mover_;
  const OutOfBudgetReporter& reporter_;
  std::int64_t begun_replays_ = 0;
};

}  // namespace recoup::detail
