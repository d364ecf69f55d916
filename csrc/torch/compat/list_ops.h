// Ops on lists of tensors, not all of which have to be resident at once.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <span>
#include <string_view>

namespace recoup::detail {

// Note [Ops on lists]
// An optimizer with foreach=True or fused=True passes all parameters, gradients and moments to one
// op. As one op it would need all of them resident at once. There are two kinds of such ops:
//
// Loops. Where ATen has no kernel for a device, a composite kernel runs an op for each tensor, and
// recoup sees each of those ops. A tensor argument outside the lists is used by all of them, and
// some kernels read it by pointer, so it is held until the end.
//
// Kernels with lists. Those of the CPU process one tensor after the other, and those of CUDA
// compute each element from elements at the same position. So such a kernel may be called several
// times, each time for a part of the lists. A table names the ops of which this is true, according
// to their sources: another kernel could look at all tensors first (a norm over all). A test fails
// for an op that writes lists and is neither a loop nor in the table.

// Whether the op takes lists and makes or writes lists, and its kernel on the CPU is composite.
[[nodiscard]] bool is_list_loop(const c10::OperatorHandle& op);
// Names with overloads: "aten::_fused_adam_.tensor_lr". All lists of such an op are of one length
// or empty, and it returns nothing.
[[nodiscard]] std::span<const std::string_view> ops_in_parts();

}  // namespace recoup::detail
