// Disturber: injects the faults and disturbances that a test requests with TestAids. Does nothing
// otherwise.
#pragma once

#include <cstdint>

#include "csrc/engine/reclaim/evictor.h"
#include "csrc/engine/reclaim/mover.h"
#include "csrc/engine/state/context.h"
#include "csrc/engine/state/out_of_budget.h"

namespace recoup::detail {

class Disturber {
 public:
  // All arguments must outlive this object.
  Disturber(const Context& context, Evictor& evictor, Mover& mover,
            const OutOfBudgetReporter& reporter);

  [[nodiscard]] bool active() const { return context_.aids.any(); }
  // Called before a block of `size` is allocated. Throws OutOfBudget if this allocation is to fail.
  void before_allocation(Bytes size);
  // Throws InjectedFault if this replay is to fail.
  void before_replay(OpId op);

 private:
  const Context& context_;
  Evictor& evictor_;
  Mover& mover_;
  const OutOfBudgetReporter& reporter_;
  std::int64_t begun_replays_ = 0;
};

}  // namespace recoup::detail
