#include "tests/torch/test_device/fused_attention.h"

#include <ATen/ATen.h>

#include <cmath>
#include <optional>

namespace recoup::test_device {
namespace {

using torch::jit::pop;
using torch::jit::push;
using torch::jit::Stack;

at::Tensor scores(const at::Tensor& query, const at::Tensor& key, double scale, bool is_causal) {
  at::Tensor found = at::matmul(query, key.transpose(-2, -1)) * scale;
  if (is_causal) {
    const at::Tensor later = at::ones({query.size(-2), key.size(-2)}, at::kBool).triu(1);
    found.masked_fill_(later, -INFINITY);
  }
  return found;
}

double scale_or_default(std::optional<double> scale, const at::Tensor& query) {
  return scale.value_or(1 / std::sqrt(static_cast<double>(query.size(-1))));
}

}  // namespace

// Without sequences of several lengths there are no bounds of them: those results are no tensors.
void flash_attention(Stack& stack) {
  const auto scale = pop(stack).toOptional<double>();
  pop(stack);  // whether a mask is wanted for debugging
  const bool is_causal = pop(stack).toBool();
  TORCH_CHECK_NOT_IMPLEMENTED(pop(stack).toDouble() == 0, "the test device has no dropout here");
  const at::Tensor value = pop(stack).toTensor();
  const at::Tensor key = pop(stack).toTensor();
  const at::Tensor query = pop(stack).toTensor();
  const at::Tensor all = scores(query, key, scale_or_default(scale, query), is_causal);
  push(stack, at::matmul(all.softmax(-1), value), all.logsumexp(-1), at::Tensor(), at::Tensor(),
       query.size(-2), key.size(-2), at::zeros({2}, at::kLong), at::zeros({}, at::kLong),
       at::empty({0}));
}

void flash_attention_backward(Stack& stack) {
  const auto scale = pop(stack).toOptional<double>();
  torch::jit::drop(stack, 2);  // the state of the generator
  const bool is_causal = pop(stack).toBool();
  torch::jit::drop(stack, 3);  // dropout, and the longest sequences
  TORCH_CHECK(!pop(stack).toTensor().defined() && !pop(stack).toTensor().defined());
  const at::Tensor sums = pop(stack).toTensor();
  const at::Tensor out = pop(stack).toTensor();
  const at::Tensor value = pop(stack).toTensor();
  const at::Tensor key = pop(stack).toTensor();
  const at::Tensor query = pop(stack).toTensor();
  const at::Tensor grad = pop(stack).toTensor();
  const double factor = scale_or_default(scale, query);
  const at::Tensor weights = (scores(query, key, factor, is_causal) - sums.unsqueeze(-1)).exp();
  const at::Tensor of_weights = at::matmul(grad, value.transpose(-2, -1));
  const at::Tensor of_scores =
      weights * (of_weights - (grad * out).sum(-1, /*keepdim=*/true)) * factor;
  push(stack, at::matmul(of_scores, key), at::matmul(of_scores.transpose(-2, -1), query),
       at::matmul(weights.transpose(-2, -1), grad));
}

}  // namespace recoup::test_device
