// Note [Kernels of the stand-in]
// Each op of ATen that has a kernel of its own for CUDA, and one for the CPU, gets another one over
// CUDA's, which
//   1. runs PyTorch's own kernel for CUDA on the host: shapes, results, workspaces, streams, the
//      generator's offset, calls of cuBLAS; each launch does nothing;
//   2. gives the current stream a piece of work that runs the kernel of the CPU on the same bytes.
// So memory is managed as on hardware, and values appear late, in the order of streams alone. An op
// that a kernel calls runs its kernel for CUDA and has no work of its own. An op whose kernel reads
// values back (nonzero, unique) waits for its stream and runs on the CPU. What is registered keeps
// the text that tells where CUDA's kernel was registered: recoup asks for it, to know ops that a
// user has overridden.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <optional>
#include <string>

namespace recoup::stand_in {

struct ShadowedOp {
  c10::SafeKernelFunction kernel;  // PyTorch's, for CUDA
  std::string name;                // as in aten::add.Tensor
  bool waits = false;              // its result needs values: in size, or on the host
  bool random = false;
  bool copies = false;                           // it is copy_
  std::optional<std::size_t> generator;          // its argument's place
  void (*on_cpu)(torch::jit::Stack&) = nullptr;  // null: the op has a kernel for the CPU
};

// What an op with a random result draws from, and moves CUDA's generator on by nothing.
[[nodiscard]] std::uint64_t draw_seed(const ShadowedOp& op, const c10::OperatorHandle& handle,
                                      torch::jit::Stack& stack);
// The CPU's kernel. A random op draws from a generator with this seed.
void run_on_cpu(const ShadowedOp& op, const c10::OperatorHandle& handle, torch::jit::Stack& stack,
                std::uint64_t seed);

// The two ways above, for arguments on the device of which twins can be made.
void run_late(const ShadowedOp& op, const c10::OperatorHandle& handle, c10::DispatchKeySet keys,
              torch::jit::Stack* stack);
void run_now(const ShadowedOp& op, const c10::OperatorHandle& handle, torch::jit::Stack* stack);

// What work could not do, a line each; empty: nothing.
[[nodiscard]] std::string failures();

}  // namespace recoup::stand_in
