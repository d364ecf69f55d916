// Call: one call of an op, with its arguments on a stack.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <cstddef>

#include "csrc/torch/ops/payload.h"
#include "csrc/torch/ops/traits.h"

namespace recoup::detail {

// All that it refers to must outlive this object.
struct Call {
  Call(const c10::OperatorHandle& of, const OpTraits& its_traits, c10::DispatchKeySet below,
       torch::jit::Stack& its_stack)
      : op(of),
        traits(its_traits),
        keys(below),
        stack(its_stack),
        argument_count(of.schema().arguments().size()),
        base(its_stack.size() - argument_count) {}

  // What is on the stack: the arguments before the kernel runs, and the results afterwards.
  [[nodiscard]] Arguments on_stack() const {
    return Arguments(stack.data() + base, stack.size() - base);
  }
  // Removes the arguments or results from the stack.
  void clear_stack() const { stack.resize(base); }

  const c10::OperatorHandle& op;
  const OpTraits& traits;
  const c10::DispatchKeySet keys;  // those below recoup's
  torch::jit::Stack& stack;
  const std::size_t argument_count;
  const std::size_t base;  // index of the first argument on the stack
};

}  // namespace recoup::detail
