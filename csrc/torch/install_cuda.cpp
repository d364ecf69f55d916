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

GpuMemory gpu_memory(int device) {
  if (!detail::gpu_type()) {
    throw std::runtime_error("recoup gives GPUs no memory in this process");
  }
  detail::cuda::Runtime& runtime = detail::gpu_allocator().runtime();
  if (const int count = runtime.device_count(); device < 0 || device >= count) {
    throw std::invalid_argument(
        detail::str_cat("there is no GPU ", device, "; there are ", count, ", numbered from 0"));
  }
  const detail::cuda::DeviceMemory memory = runtime.memory(device);
  return {.free = memory.free,
          .total = memory.total,
          .outside = detail::gpu_allocator().usage(device).reserved};
}

}  // namespace recoup
