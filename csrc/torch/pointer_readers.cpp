// Composite kernels that look at a tensor's bytes by pointer: they run above all ops that we see,
// so what they look at is made resident first.
#include <ATen/ATen.h>
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
  // As it would convert them, so that it keeps pointers to these.
  const auto convert = [](const at::Tensor& lengths) {
    return at::isIntegralType(lengths.scalar_type(), /*includeBool=*/false)
               ? lengths.to(at::kCPU, at::kLong).contiguous()
               : lengths;  // it will complain
  };
  const at::Tensor inputs = convert(input_lengths);
  const Pin inputs_stay(inputs);
  const at::Tensor outputs = convert(target_lengths);
  const Pin outputs_stay(outputs);
  return at::native::ctc_loss(log_probs, targets, inputs, outputs, blank, reduction, zero_infinity);
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
