#include "csrc/engine/base/op.h"

namespace recoup::detail {

OpUses::OpUses(std::span<const Operand> operands) {
  inputs.reserve(operands.size());
  for (const Operand& operand : operands) {
    if (operand.reads && operand.value.valid()) {
      inputs.push_back(operand.value);
    }
    if (operand.written && operand.storage.valid()) {
      const WrittenStorage each{.storage = operand.storage, .overwritten = operand.overwritten};
      if (operand.left_out) {
        in_passing.push_back(each);
      } else {
        written.push_back(each);
      }
    }
  }
}

}  // namespace recoup::detail
