// Composite kernels that look at a tensor's bytes by pointer: they run above all ops that we see,
// so what they look at is made resident first.
#include <ATen/ops/ctc_loss_native.h>
#include <ATen/ops/tensor_split_native.h>
#include <torch/library.h>

#include "recoup/torch.h"

namespace recoup::detail {
namespace {

std::vector<at::Tensor> tensor_split(const at::Tensor& self, const at::Tensor& indices,
                                     std::int64_t dim) {
  materialize(indices);
  return at::native::tensor_split(self, indices, dim);
}

at::Tensor ctc_loss(const at::Tensor& log_probs, const at::Tensor& targets,
                    const at::Tensor& input_lengths, const at::Tensor& target_lengths,
                    std::int64_t blank, std::int64_t reduction, bool zero_infinity) {
  const Pin kept(input_lengths);
  materialize(target_lengths);
  return at::native::ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, reduction,
                              zero_infinity);
}

}  // namespace
}  // namespace recoup::detail

TORCH_LIBRARY_IMPL(aten, AutogradCPU, library) {
  library.impl("tensor_split.tensor_indices_or_sections", &recoup::detail::tensor_split);
  library.impl("ctc_loss.Tensor", &recoup::detail::ctc_loss);
}
TORCH_LIBRARY_IMPL(aten, CPU, library) {
  library.impl("tensor_split.tensor_indices_or_sections", &recoup::detail::tensor_split);
}
