// The CUDA toolkit's runtime.
#pragma once

#include <memory>

#include "csrc/cuda/runtime.h"

namespace recoup::detail::cuda {

// Makes no call to the driver yet: a process that has done so cannot fork and use CUDA in the
// child. Without a driver or a device, methods throw CudaError with advice.
std::unique_ptr<Runtime> make_cudart();

}  // namespace recoup::detail::cuda
