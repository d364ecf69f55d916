// Runs a CPU kernel.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/PhiloxCudaState.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <mutex>
#include <optional>
#include <utility>

#include "tests/cuda_stand_in/kernels/shadowed_op.h"
#include "tests/cuda_stand_in/kernels/twins.h"

namespace recoup::stand_in {
namespace {

using torch::jit::peek;
using torch::jit::Stack;

// Bypasses autograd, autocast and observers, so that only the CPU kernel runs.
class KernelsOnly {
 private:
  c10::impl::ExcludeDispatchKeyGuard guard_{
      c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset |
      c10::DispatchKeySet({c10::DispatchKey::Fake, c10::DispatchKey::Python})};
};

// Seeds the default CPU generator and restores its state at the end.
class SeededDefault {
 public:
  explicit SeededDefault(std::uint64_t seed) : generator_(at::detail::getDefaultCPUGenerator()) {
    const std::lock_guard lock(generator_.mutex());
    before_ = generator_.get_state();
    generator_.set_current_seed(seed);
  }
  ~SeededDefault() {
    const std::lock_guard lock(generator_.mutex());
    generator_.set_state(before_);
  }
  SeededDefault(const SeededDefault&) = delete;
  SeededDefault& operator=(const SeededDefault&) = delete;

 private:
  at::Generator generator_;
  at::Tensor before_;
};

at::Tensor to_device(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_cpu()) {
    return tensor;
  }
  const c10::Device device(c10::kCUDA, c10::cuda::current_device());
  at::Tensor made =
      at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(device));
  if (tensor.numel() > 0) {
    cudaMemcpyAsync(made.mutable_data_ptr(), tensor.const_data_ptr(),
                    bytes_used(tensor, false).size, cudaMemcpyHostToDevice,
                    c10::cuda::getCurrentCUDAStream().stream());
  }
  return made;
}

}  // namespace

std::uint64_t DrawState::seed_on_cpu() const {
  const auto read = [](const void* memory) {
    return memory == nullptr ? 0 : *static_cast<const std::uint64_t*>(stand_in_bytes(memory));
  };
  const std::uint64_t mixed = ((seed + read(seed_memory)) * 0x9E3779B97F4A7C15ULL) ^
                              ((offset + read(offset_memory)) * 0xC2B2AE3D27D4EB4FULL + 1);
  return (mixed ^ (mixed >> 29)) & 0xFFFFFFFFU;
}

std::optional<DrawState> draw_state(const ShadowedOp& op, const c10::OperatorHandle& handle,
                                    Stack& stack) {
  if (!op.random) {
    return std::nullopt;
  }
  at::Generator generator = at::cuda::detail::getDefaultCUDAGenerator();
  if (op.generator) {
    const c10::IValue& given = peek(stack, *op.generator, handle.schema().arguments().size());
    if (!given.isNone()) {
      generator = given.toGenerator();
    }
  }
  if (generator.device().type() != c10::kCUDA) {
    return std::nullopt;
  }
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cudaStreamIsCapturing(c10::cuda::getCurrentCUDAStream().stream(), &status);
  if (status != cudaStreamCaptureStatusActive) {
    return DrawState{.seed = generator.current_seed(), .offset = generator.get_offset()};
  }
  const at::PhiloxCudaState state =
      at::check_generator<at::CUDAGeneratorImpl>(generator)->philox_cuda_state(0);
  return DrawState{.offset = state.offset_intragraph_,
                   .seed_memory = state.seed_.ptr,
                   .offset_memory = state.offset_.ptr};
}

void run_on_cpu(const ShadowedOp& op, const c10::OperatorHandle& handle, Stack& stack,
                std::uint64_t seed) {
  const KernelsOnly guard;
  constexpr c10::DispatchKeySet kCpu(c10::DispatchKey::CPU);
  if (op.on_cpu != nullptr) {
    op.on_cpu(stack);
  } else if (op.random && op.generator) {
    peek(stack, *op.generator, handle.schema().arguments().size()) =
        at::make_generator<at::CPUGeneratorImpl>(seed);
    handle.redispatchBoxed(kCpu, &stack);
  } else if (op.random) {
    const SeededDefault seeded(seed);
    handle.redispatchBoxed(kCpu, &stack);
  } else {
    handle.redispatchBoxed(kCpu, &stack);
  }
}

void run_now(const ShadowedOp& op, const c10::OperatorHandle& handle, Stack* stack) {
  const std::optional<DrawState> state = draw_state(op, handle, *stack);
  cudaStreamSynchronize(c10::cuda::getCurrentCUDAStream().stream());
  TwinMemory memory;
  const std::size_t count = handle.schema().arguments().size();
  for (std::size_t i = 0; i < count; ++i) {
    c10::IValue& value = peek(*stack, i, count);
    value = twin_of(memory, value, false);
  }
  run_on_cpu(op, handle, *stack, state ? state->seed_on_cpu() : 0);
  const std::size_t results = handle.schema().returns().size();
  for (std::size_t i = 0; i < results; ++i) {
    c10::IValue& value = peek(*stack, i, results);
    if (value.isTensor()) {
      value = to_device(value.toTensor());
    }
  }
}

}  // namespace recoup::stand_in
