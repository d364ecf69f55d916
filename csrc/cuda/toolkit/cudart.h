// The CUDA toolkit's runtime.
#pragma once

#include <memory>

#include "csrc/cuda/runtime.h"

namespace recoup::detail::cuda {

// Asks the driver for nothing yet: a process that has may not fork and use CUDA in the child. Its
// methods throw CudaError that says what to do when there is no driver or no device.
std::unique_ptr<Runtime> make_cudart();

}  // namespace recoup::detail::cuda
