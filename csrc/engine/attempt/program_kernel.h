// ProgramKernel: the kernel of an op that the program runs, live or in a simulation.
#pragma once

#include <span>
#include <vector>

#include "csrc/engine/attempt/op_kernel.h"

namespace recoup::detail {

class ProgramKernel : public OpKernel {
 public:
  [[nodiscard]] std::vector<ValueId> movable() const final {
    std::vector<ValueId> pinned;
    for (const Operand& operand : operands()) {
      if (operand.value.valid()) {
        pinned.push_back(operand.value);
      }
    }
    return pinned;
  }
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
  // The operands of the op, after ProgramOp::begin.
  [[nodiscard]] virtual std::span<const Operand> operands() const = 0;
};

}  // namespace recoup::detail
