// InPlaceTry: runs an op's kernel so that a result takes the block of an operand.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <cstddef>
#include <optional>

#include "csrc/torch/calls/operands.h"
#include "csrc/torch/session/session.h"

namespace recoup::detail {

// Note [Results in place] in handover.h, Note [Overwritable operands] in overwritable.h.
class InPlaceTry {
 public:
  explicit InPlaceTry(Session& session) : session_(session) {}

  // The op lacked `asked` bytes, or has not run yet. Evicts an operand, and puts the arguments back
  // on the stack, from `base` on, with a tensor over the evicted bytes in its place. False: no
  // operand's block can be taken, and the stack is unchanged.
  [[nodiscard]] bool prepare(Operands& operands, std::optional<Bytes> asked,
                             torch::jit::Stack& stack, std::size_t base);
  // Whether no allocation has taken the operand's block, or a result has that replaces the operand
  // element by element. If not, the kernel may have overwritten bytes before it read them.
  [[nodiscard]] bool is_right(Arguments results) const;

 private:
  Session& session_;
  at::Tensor operand_;  // over the evicted bytes
};

}  // namespace recoup::detail
