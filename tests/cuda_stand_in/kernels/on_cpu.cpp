// Runs a CPU kernel.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <mutex>
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

std::uint64_t draw_seed(const ShadowedOp& op, const c10::OperatorHandle& handle, Stack& stack) {
  if (!op.random) {
    return 0;
  }
  at::Generator generator = at::cuda::detail::getDefaultCUDAGenerator();
  if (op.generator) {
    const c10::IValue& given = peek(stack, *op.generator, handle.schema().arguments().size());
    if (!given.isNone()) {
      generator = given.toGenerator();
    }
  }
  if (generator.device().type() != c10::kCUDA) {
    return 0;
  }
  const std::uint64_t mixed = (generator.current_seed() * 0x9E3779B97F4A7C15ULL) ^
                              (generator.get_offset() * 0xC2B2AE3D27D4EB4FULL + 1);
  return (mixed ^ (mixed >> 29)) & 0xFFFFFFFFU;
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
  const std::uint64_t seed = draw_seed(op, handle, *stack);
  cudaStreamSynchronize(c10::cuda::getCurrentCUDAStream().stream());
  TwinMemory memory;
  const std::size_t count = handle.schema().arguments().size();
  for (std::size_t i = 0; i < count; ++i) {
    c10::IValue& value = peek(*stack, i, count);
    value = twin_of(memory, value, false);
  }
  run_on_cpu(op, handle, *stack, seed);
  const std::size_t results = handle.schema().returns().size();
  for (std::size_t i = 0; i < results; ++i) {
    c10::IValue& value = peek(*stack, i, results);
    if (value.isTensor()) {
      value = to_device(value.toTensor());
    }
  }
}

}  // namespace recoup::stand_in
