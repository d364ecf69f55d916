// Kernels of ATen's ops that are not ATen's.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>
#include <string>
#include <vector>

namespace recoup::detail {

// Note [Overrides]
// `torch.library.Library("aten", "IMPL")`, in C++ TORCH_LIBRARY_IMPL(aten, ...), puts somebody's
// kernel in the place of ATen's. It is a guest (Note [Opaque ops]) as the kernel of a custom op is.
// The dispatcher knows from which source file each kernel was registered: ATen's own are of the
// tree that PyTorch was built from.
//
// PyTorch itself does so since 2.14: `torch/_native` has kernels in Python for GPUs (bmm, sum,
// topk). They are guests there, and change nothing of the same op on the CPU.

// Which kernels of an op a call may reach.
enum class Reach : std::uint8_t {
  kHost,  // those of tensors on the CPU, of all layouts
  kAll,   // those of GPUs too
};

// Of a call with these keys. One that makes a tensor, and is given none, may make it anywhere.
[[nodiscard]] inline Reach reach_of(c10::DispatchKeySet keys) {
  constexpr std::uint64_t kHostOnly =
      std::uint64_t{1} << (static_cast<std::uint8_t>(c10::BackendComponent::CPUBit) - 1);
  return (keys.raw_repr() & c10::full_backend_mask) == kHostOnly ? Reach::kHost : Reach::kAll;
}

// Whether the op has such a kernel within this reach now. Of a kernel that is registered while a
// scope is open the next scope knows.
[[nodiscard]] bool is_overridden(const c10::OperatorHandle& op, Reach reach);
// Whether its kernels for plain tensors on the CPU are of PyTorch's sources, and in C++. Also of
// ops that are not ATen's; an op without such a kernel is made of others.
[[nodiscard]] bool is_of_torch(const c10::OperatorHandle& op);
// All of ATen's that have one anywhere.
[[nodiscard]] std::vector<std::string> overridden_ops();

}  // namespace recoup::detail
