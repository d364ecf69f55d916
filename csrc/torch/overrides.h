// Kernels of ATen's ops that are not ATen's.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <string>
#include <vector>

namespace recoup::detail {

// Note [Overrides]
// `torch.library.Library("aten", "IMPL")`, in C++ TORCH_LIBRARY_IMPL(aten, ...), puts somebody's
// kernel in the place of ATen's. It is a guest (Note [Guests]) as the kernel of a custom op is. The
// dispatcher knows from which source file each kernel was registered: ATen's own are of the tree
// that PyTorch was built from.
//
// Whether the op has such a kernel on the CPU or a GPU now. Of a kernel that is registered while a
// scope is open the next scope knows.
[[nodiscard]] bool is_overridden(const c10::OperatorHandle& op);
// All of ATen's that have one.
[[nodiscard]] std::vector<std::string> overridden_ops();

}  // namespace recoup::detail
