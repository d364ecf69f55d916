// ProgramKernel: the kernel of an op that the program runs, live or in a simulation.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "csrc/engine/attempt/op_kernel.h"
#include "csrc/engine/program/program_op.h"

namespace recoup::detail {

class ProgramKernel : public OpKernel {
 public:
  [[nodiscard]] Few<ValueId> movable() const final { return pinned_by(operands()); }
  [[nodiscard]] std::vector<ValueId> overwritable() override {
    std::vector<ValueId> found;
    for (const Operand& operand : operands()) {
      if (operand.overwritable) {
        found.push_back(operand.value);
      }
    }
    return found;
  }

 protected:
  // Takes a measure and begins the next run of the op's kernel. False: `measure` returned false.
  [[nodiscard]] static bool begin_again(const std::function<bool()>& measure, ProgramOp& op) {
    const bool taken = measure();
    if (taken) {
      op.begin_again();
    }
    return taken;
  }
  // The operands of the op, after ProgramOp::begin.
  [[nodiscard]] virtual std::span<const Operand> operands() const = 0;
};

}  // namespace recoup::detail
