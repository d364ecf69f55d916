// The CUDA toolkit's runtime under PyTorch's CUDA devices, in builds that have one.
#include <stdexcept>

#include "csrc/base/strings.h"
#include "csrc/torch/gpus.h"
#include "csrc/torch/pluggable.h"
#include "recoup/torch.h"
#ifdef RECOUP_WITH_CUDA
#include "csrc/cuda/toolkit/cudart.h"
#include "csrc/torch/cuda_decorator.h"
#endif

namespace recoup {

#ifdef RECOUP_WITH_CUDA
bool with_cuda() { return true; }

void install_cuda() {
  std::atomic<detail::CudaAllocator*>& slot = detail::cuda_allocator_slot();
  detail::decorate_cuda(detail::Gpus::install(c10::DeviceType::CUDA, detail::cuda::make_cudart()),
                        slot);
}

void install_pluggable_cuda() {
  detail::use_pluggable(detail::Gpus::install(c10::DeviceType::CUDA, detail::cuda::make_cudart()));
}
#else
namespace {
[[noreturn]] void throw_without_cuda() {
  throw std::logic_error("this build of recoup knows no CUDA");
}
}  // namespace

bool with_cuda() { return false; }

void install_cuda() { throw_without_cuda(); }

void install_pluggable_cuda() { throw_without_cuda(); }
#endif

namespace {

void require_gpu(int device) {
  if (!detail::gpu_type()) {
    throw std::runtime_error("recoup knows no GPUs in this process");
  }
  const int count = detail::gpus().runtime().device_count();
  if (device < 0 || device >= count) {
    throw std::invalid_argument(
        detail::str_cat("there is no GPU ", device, "; there are ", count, ", numbered from 0"));
  }
}

detail::cuda::Allocator& pluggable_allocator_of(int device) {
  require_gpu(device);
  detail::cuda::Allocator* const allocator = detail::pluggable_allocator();
  if (allocator == nullptr) {
    throw std::logic_error("recoup is not PyTorch's pluggable allocator");
  }
  return *allocator;
}

}  // namespace

GpuMemory gpu_memory(int device) {
  require_gpu(device);
  detail::Gpus& gpus = detail::gpus();
  const detail::cuda::DeviceMemory memory = gpus.runtime().memory(device);
  const detail::OutsideMemory::Usage outside = gpus.outside().usage(device);
  const detail::cuda::Scopes::Usage scopes = gpus.scopes().usage(device);
  return {.free = memory.free,
          .total = memory.total,
          .outside = outside.reserved + scopes.left,
          .reserved = outside.reserved + scopes.reserved,
          .used = outside.used + scopes.used};
}

PluggablePeaks pluggable_peaks(int device) {
  const detail::cuda::Allocator::Usage usage = pluggable_allocator_of(device).usage(device);
  return {.reserved = usage.peak_reserved, .used = usage.peak_used};
}

void reset_pluggable_peaks(int device) { pluggable_allocator_of(device).reset_peaks(device); }

}  // namespace recoup
