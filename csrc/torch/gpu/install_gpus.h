// Enables budgets on the GPUs of a process.
#pragma once

#include <c10/core/DeviceType.h>

#include <memory>

#include "csrc/cuda/runtime.h"
#include "csrc/torch/gpu/gpus.h"
#include "recoup/api.h"

namespace recoup::detail {

// Enables budgets on PyTorch's devices of this type: CUDA, or the device that replaces it in tests.
// The caller must call Gpus::set_outside() next. Throws std::logic_error on a second call in a
// process.
RECOUP_API Gpus& install_gpus(c10::DeviceType type, std::unique_ptr<cuda::Runtime> runtime);

}  // namespace recoup::detail
