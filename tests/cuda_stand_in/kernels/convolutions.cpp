#include "tests/cuda_stand_in/kernels/convolutions.h"

#include <ATen/ATen.h>

#include <optional>
#include <vector>

namespace recoup::stand_in {

using torch::jit::pop;
using torch::jit::push;

void depthwise_convolution(torch::jit::Stack& stack) {
  const std::vector<std::int64_t> dilation = pop(stack).toIntVector();
  const std::vector<std::int64_t> padding = pop(stack).toIntVector();
  const std::vector<std::int64_t> stride = pop(stack).toIntVector();
  const auto bias = pop(stack).toOptional<at::Tensor>();
  pop(stack);  // the kernel's size, which the weight implies
  const at::Tensor weight = pop(stack).toTensor();
  const at::Tensor input = pop(stack).toTensor();
  push(stack, at::conv2d(input, weight, bias, stride, padding, dilation, input.size(1)));
}

}  // namespace recoup::stand_in
