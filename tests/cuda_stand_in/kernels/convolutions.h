// Convolutions that are ops of their own only on devices: computed on the CPU, with the arguments
// and results of those ops.
#pragma once

#include <ATen/core/stack.h>

namespace recoup::stand_in {

void depthwise_convolution(torch::jit::Stack& stack);

}  // namespace recoup::stand_in
