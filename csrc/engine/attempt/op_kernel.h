// OpKernel: the kernel of one op, as Attempts runs it.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "csrc/engine/attempt/paging.h"
#include "csrc/engine/base/op.h"
#include "recoup/errors.h"
#include "recoup/types.h"

namespace recoup::detail {

// How a kernel is run.
struct Attempt {
  Paging paging;
  bool in_place = false;  // a result is to take the block of an operand: Note [Results in place]

  // Whether memory of the kernel may be overflow memory.
  [[nodiscard]] bool may_overflow() const { return paging.when != Paging::When::kNever; }
  // Returns `size` bytes for the kernel: what `in_pool` returns, which throws OutOfBudget, or what
  // `overflow` returns.
  template <class InPool, class Overflow>
  [[nodiscard]] auto place(Bytes size, InPool&& in_pool, Overflow&& overflow) const {
    if (!paging.takes(size)) {
      return in_pool();
    }
    if (paging.when == Paging::When::kIfNeeded) {
      try {
        return in_pool();
      } catch (const OutOfBudget&) {
      }
    }
    return overflow();
  }
};

// A program's op, a simulated op and a replayed op each implement this.
class OpKernel {
 public:
  virtual ~OpKernel() = default;

  // Runs the kernel. nullopt: it ended. Otherwise why it lacked memory; Handover::kNotTaken is the
  // reason if the results of an attempt in place may be wrong. Throws any other failure.
  [[nodiscard]] virtual std::optional<OutOfBudgetReport> run(const Attempt& attempt) = 0;
  // A run may change them.
  [[nodiscard]] virtual KernelLimits limits() const = 0;
  // Prepares the attempt `next`: undoes what the last run did to the op's operands and arguments,
  // and calls `measure` under the engine's lock. False: `measure` returned false, and run() needs
  // another call of prepare() before it.
  [[nodiscard]] virtual bool prepare(const Attempt& next, const std::function<bool()>& measure) = 0;
  // The values that the op has pinned, and that may move between two runs.
  [[nodiscard]] virtual Few<ValueId> movable() const = 0;
  // The operands whose blocks a result may take.
  [[nodiscard]] virtual std::vector<ValueId> overwritable() = 0;

 protected:
  OpKernel() = default;
  OpKernel(const OpKernel&) = default;
  OpKernel& operator=(const OpKernel&) = default;
};

}  // namespace recoup::detail
