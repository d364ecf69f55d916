// Connects the CUDA toolkit's runtime to PyTorch's CUDA devices, in builds that have it.
#include <mutex>
#include <stdexcept>

#include "csrc/base/strings.h"
#include "csrc/torch/backend/backends.h"
#include "csrc/torch/gpu/gpus.h"
#include "recoup/torch.h"
#ifdef RECOUP_WITH_CUDA
#include "csrc/cuda/toolkit/cudart.h"
#include "csrc/torch/gpu/cuda_decorator.h"
#include "csrc/torch/gpu/install_gpus.h"
#endif

namespace recoup {

#ifdef RECOUP_WITH_CUDA
bool with_cuda() { return true; }

void install_cuda() {
  static std::mutex installing;
  const std::lock_guard lock(installing);
  if (detail::accelerator() == c10::DeviceType::CUDA) {
    return;
  }
  std::atomic<detail::CudaAllocator*>& slot = detail::cuda_allocator_slot();
  detail::decorate_cuda(detail::install_gpus(c10::DeviceType::CUDA, detail::cuda::make_cudart()),
                        slot);
}
#else
bool with_cuda() { return false; }

void install_cuda() { throw std::logic_error("recoup was built without CUDA"); }
#endif

GpuMemory gpu_memory(int device) {
  if (!detail::accelerator()) {
    install_cuda();
  }
  detail::Gpus& gpus = detail::gpus();
  const int count = gpus.runtime().device_count();
  if (device < 0 || device >= count) {
    throw std::invalid_argument(
        detail::str_cat("GPU ", device, " does not exist; there are ", count, ", numbered from 0"));
  }
  const detail::cuda::DeviceMemory memory = gpus.runtime().memory(device);
  const detail::OutsideMemory::Usage outside = gpus.outside().usage(device);
  const detail::cuda::Scopes::Usage scopes = gpus.scopes().usage(device);
  return {.free = memory.free,
          .total = memory.total,
          .outside = outside.reserved + scopes.left,
          .reserved = outside.reserved + scopes.reserved,
          .used = outside.used + scopes.used};
}

}  // namespace recoup
