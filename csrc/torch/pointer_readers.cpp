// Ops above all dispatch keys of ours that look at a tensor's bytes by pointer: composite kernels
// that run before any op is seen. What they look at is made resident first.
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

}  // namespace
}  // namespace recoup::detail

TORCH_LIBRARY_IMPL(aten, AutogradCPU, library) {
  library.impl("tensor_split.tensor_indices_or_sections", &recoup::detail::tensor_split);
}
TORCH_LIBRARY_IMPL(aten, CPU, library) {
  library.impl("tensor_split.tensor_indices_or_sections", &recoup::detail::tensor_split);
}
