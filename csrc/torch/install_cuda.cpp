// The CUDA toolkit's runtime under PyTorch's CUDA devices, in builds that have one.
#include <stdexcept>

#include "csrc/base/strings.h"
#include "csrc/torch/gpus.h"
#include "recoup/torch.h"
#ifdef RECOUP_WITH_CUDA
#include "csrc/cuda/toolkit/cudart.h"
#endif

namespace recoup {

#ifdef RECOUP_WITH_CUDA
bool with_cuda() { return true; }

void install_cuda() { detail::install_gpus(c10::DeviceType::CUDA, detail::cuda::make_cudart()); }
#else
bool with_cuda() { return false; }

void install_cuda() { throw std::logic_error("this build of recoup knows no CUDA"); }
#endif

namespace {

detail::cuda::Allocator& allocator_of(int device) {
  if (!detail::gpu_type()) {
    throw std::runtime_error("recoup gives GPUs no memory in this process");
  }
  detail::cuda::Allocator& allocator = detail::gpu_allocator();
  const int count = allocator.runtime().device_count();
  if (device < 0 || device >= count) {
    throw std::invalid_argument(
        detail::str_cat("there is no GPU ", device, "; there are ", count, ", numbered from 0"));
  }
  return allocator;
}

}  // namespace

GpuMemory gpu_memory(int device) {
  detail::cuda::Allocator& allocator = allocator_of(device);
  const detail::cuda::DeviceMemory memory = allocator.runtime().memory(device);
  const detail::cuda::Allocator::Usage usage = allocator.usage(device);
  return {.free = memory.free,
          .total = memory.total,
          .outside = usage.outside,
          .reserved = usage.reserved,
          .used = usage.used,
          .peak_reserved = usage.peak_reserved,
          .peak_used = usage.peak_used};
}

void reset_gpu_peaks(int device) { allocator_of(device).reset_peaks(device); }

}  // namespace recoup
