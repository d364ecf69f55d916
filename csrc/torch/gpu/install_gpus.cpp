#include "csrc/torch/gpu/install_gpus.h"

#include <utility>

#include "csrc/torch/backend/backends.h"
#include "csrc/torch/gpu/gpu_backend.h"

namespace recoup::detail {
namespace {

std::unique_ptr<Backend> make_gpu_backend(c10::Device device) {
  return std::make_unique<GpuBackend>(device);
}

}  // namespace

Gpus& install_gpus(c10::DeviceType type, std::unique_ptr<cuda::Runtime> runtime) {
  Gpus& gpus = Gpus::install(type, std::move(runtime));
  set_accelerator(type, &make_gpu_backend);
  return gpus;
}

}  // namespace recoup::detail
