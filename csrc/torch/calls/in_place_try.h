// InPlaceTry: runs an op's kernel so that a result takes the block of an operand.
#pragma once

#include <ATen/core/Tensor.h>

#include "csrc/torch/calls/call.h"
#include "csrc/torch/calls/operands.h"
#include "csrc/torch/session/session.h"

namespace recoup::detail {

// Note [Results in place] in handover.h, Note [Overwritable operands] in overwritable.h.
class InPlaceTry {
 public:
  explicit InPlaceTry(Session& session) : session_(session) {}

  // On the stack, replaces the operand whose block was handed over by a tensor over its bytes.
  void put_operand(const Call& call, const Operands& operands, const EngineLock& lock);
  // Whether no allocation has taken the operand's block, or a result has that replaces the operand
  // element by element. If not, the kernel may have overwritten bytes before it read them.
  [[nodiscard]] bool is_right(Arguments results) const;

 private:
  Session& session_;
  at::Tensor operand_;  // over the evicted bytes
};

}  // namespace recoup::detail
