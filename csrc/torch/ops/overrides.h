// Kernels of ATen's ops that come from other code than ATen.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>
#include <string>
#include <vector>

namespace recoup::detail {

// Note [Overrides]
// `torch.library.Library("aten", "IMPL")`, in C++ TORCH_LIBRARY_IMPL(aten, ...), replaces a kernel
// of ATen's by the caller's. Such an op is opaque (Note [Opaque ops]), like a custom op. The
// dispatcher knows the source file of each registration: ATen's own files are in the source tree
// that PyTorch was built from.
//
// Since 2.14, PyTorch does so itself: `torch/_native` has kernels in Python for GPUs (bmm, sum,
// topk). These ops are opaque on GPUs; the same op on the CPU is not affected.

// The kernels of an op that a call may reach.
enum class Reach : std::uint8_t {
  kHost,  // those for tensors on the CPU, in all layouts
  kAll,   // those for GPUs, too
};

// The reach of a call with these keys. An op that makes a tensor from no tensor may make it
// anywhere.
[[nodiscard]] inline Reach reach_of(c10::DispatchKeySet keys) {
  constexpr std::uint64_t kHostOnly =
      std::uint64_t{1} << (static_cast<std::uint8_t>(c10::BackendComponent::CPUBit) - 1);
  return (keys.raw_repr() & c10::full_backend_mask) == kHostOnly ? Reach::kHost : Reach::kAll;
}

// Whether the op has such a kernel within this reach now. A kernel that is registered while a scope
// is open is noticed in the next scope.
[[nodiscard]] bool is_overridden(const c10::OperatorHandle& op, Reach reach);
// Whether the op's kernel for plain tensors on the CPU is in C++ and from PyTorch's sources. Also
// for ops that are not ATen's. False for an op without such a kernel, which consists of other ops.
[[nodiscard]] bool is_of_torch(const c10::OperatorHandle& op);
// All of ATen's ops that have such a kernel on any device.
[[nodiscard]] std::vector<std::string> overridden_ops();

}  // namespace recoup::detail
