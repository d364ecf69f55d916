// Note [Kernels of the stand-in]
// Each ATen op that has its own CUDA kernel and a CPU kernel gets another kernel, registered over
// CUDA's, which
//   1. runs PyTorch's CUDA kernel on the host: shapes, results, workspaces, streams, the
//      generator's offset, calls of cuBLAS; each launch does nothing;
//   2. enqueues work on the current stream that runs the CPU kernel on the same bytes.
// So memory is managed as on hardware, and values appear late, in stream order. An op that is
// called by a kernel runs its CUDA kernel and enqueues no work. An op whose kernel reads values
// back (nonzero, unique) waits for its stream and runs on the CPU. The new registration keeps the
// text that tells where the CUDA kernel was registered, because recoup uses it to find ops that a
// user has overridden.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <optional>
#include <string>

namespace recoup::stand_in {

struct ShadowedOp {
  c10::SafeKernelFunction kernel;  // PyTorch's CUDA kernel
  std::string name;                // such as aten::add.Tensor
  bool waits = false;  // the size of its result depends on values, or the result is on the host
  bool random = false;
  bool copies = false;                           // whether the op is copy_
  std::optional<std::size_t> generator;          // index of the argument
  void (*on_cpu)(torch::jit::Stack&) = nullptr;  // null: the op has a CPU kernel
};

// The state of CUDA's generator at an op. Each launch of a graph writes the seed and an offset into
// device memory; an op of the graph adds its own offset.
struct DrawState {
  std::uint64_t seed = 0;
  std::uint64_t offset = 0;
  const void* seed_memory = nullptr;  // null: the op is not captured
  const void* offset_memory = nullptr;

  [[nodiscard]] std::uint64_t seed_on_cpu() const;
};

// The state for an op with random results; nullopt: it draws nothing from CUDA's generator. Does
// not advance the generator.
[[nodiscard]] std::optional<DrawState> draw_state(const ShadowedOp& op,
                                                  const c10::OperatorHandle& handle,
                                                  torch::jit::Stack& stack);
// Runs the CPU kernel. A random op draws from a generator with this seed.
void run_on_cpu(const ShadowedOp& op, const c10::OperatorHandle& handle, torch::jit::Stack& stack,
                std::uint64_t seed);

// The two ways to run an op, for arguments on the device that have twins.
void run_late(const ShadowedOp& op, const c10::OperatorHandle& handle, c10::DispatchKeySet keys,
              torch::jit::Stack* stack);
void run_now(const ShadowedOp& op, const c10::OperatorHandle& handle, torch::jit::Stack* stack);

// Returns one line per failure of work, or an empty string.
[[nodiscard]] std::string failures();

}  // namespace recoup::stand_in
