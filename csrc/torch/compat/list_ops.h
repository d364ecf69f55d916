// Ops on lists of tensors, which need not have all of their tensors at once.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <span>
#include <string_view>

namespace recoup::detail {

// Note [Ops on lists]
// An optimizer with foreach=True or fused=True names all parameters, gradients and moments in one
// op. As one op they would all have to be there at once. There are two kinds:
//
// Loops. Where ATen has no kernel for a device, a composite one runs an op for each tensor. Below
// it each of those ops is seen by itself. A tensor that is no list's is for all of them, and some
// kernels read it by pointer: it is held until the end.
//
// Kernels with lists. Those of the CPU take the tensors one after the other, and those of CUDA
// compute each element from elements at the same place. So it is the same to call them for some
// tensors after the others: in parts. Of which that is true is in a table, and read in their
// sources: a kernel could as well look at all tensors first (a norm over all). A test fails for an
// op that writes lists and is neither a loop nor in the table.

// Whether the kernel that runs on the CPU is composite, and lists go in and out of it.
[[nodiscard]] bool is_list_loop(const c10::OperatorHandle& op);
// With overloads: "aten::_fused_adam_.tensor_lr". All lists of such an op have one length or none,
// and it returns nothing.
[[nodiscard]] std::span<const std::string_view> ops_in_parts();

}  // namespace recoup::detail
