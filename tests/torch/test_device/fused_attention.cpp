#include "tests/torch/test_device/fused_attention.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

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

// The factor of each weight: 0 if it is dropped, otherwise 1 / (1 - dropout).
at::Tensor kept(const at::Tensor& weights, double dropout, const at::Tensor& seed) {
  if (dropout == 0) {
    return at::ones_like(weights);
  }
  const auto generator =
      at::make_generator<at::CPUGeneratorImpl>(static_cast<std::uint64_t>(seed.item<int64_t>()));
  return (at::rand_like(weights, generator) >= dropout).to(weights.scalar_type()) / (1 - dropout);
}

at::Tensor plus_bias(const at::Tensor& scores, const std::optional<at::Tensor>& bias) {
  return bias && bias->defined() ? scores + *bias : scores;
}

}  // namespace

// The bounds of sequences of different lengths do not exist here: those results are undefined
// tensors.
void flash_attention(Stack& stack) {
  const auto scale = pop(stack).toOptional<double>();
  pop(stack);  // whether a debug mask is requested
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
  torch::jit::drop(stack, 3);  // dropout, and the largest sequence lengths
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

void efficient_attention(Stack& stack) {
  const auto scale = pop(stack).toOptional<double>();
  const bool is_causal = pop(stack).toBool();
  const double dropout = pop(stack).toDouble();
  pop(stack);  // whether the sums are requested
  const auto bias = pop(stack).toOptional<at::Tensor>();
  const at::Tensor value = pop(stack).toTensor();
  const at::Tensor key = pop(stack).toTensor();
  const at::Tensor query = pop(stack).toTensor();
  const at::Tensor all =
      plus_bias(scores(query, key, scale_or_default(scale, query), is_causal), bias);
  const at::Tensor seed = at::randint(1 << 30, {}, at::kLong);
  const at::Tensor weights = all.softmax(-1);
  push(stack, at::matmul(weights * kept(weights, dropout, seed), value), all.logsumexp(-1), seed,
       at::zeros({}, at::kLong));
}

void efficient_attention_backward(Stack& stack) {
  const auto scale = pop(stack).toOptional<double>();
  const bool is_causal = pop(stack).toBool();
  pop(stack);  // which gradients are requested
  const double dropout = pop(stack).toDouble();
  pop(stack);  // the offset
  const at::Tensor seed = pop(stack).toTensor();
  const at::Tensor sums = pop(stack).toTensor();
  const at::Tensor out = pop(stack).toTensor();
  const auto bias = pop(stack).toOptional<at::Tensor>();
  const at::Tensor value = pop(stack).toTensor();
  const at::Tensor key = pop(stack).toTensor();
  const at::Tensor query = pop(stack).toTensor();
  const at::Tensor grad = pop(stack).toTensor();
  TORCH_CHECK(seed.is_cpu(), "the seed is where the forward pass left it");
  const double factor = scale_or_default(scale, query);
  const at::Tensor all = plus_bias(scores(query, key, factor, is_causal), bias);
  const at::Tensor weights = (all - sums.unsqueeze(-1)).exp();
  const at::Tensor mask = kept(weights, dropout, seed);
  const at::Tensor of_weights = at::matmul(grad, value.transpose(-2, -1)) * mask;
  const at::Tensor of_scores = weights * (of_weights - (grad * out).sum(-1, /*keepdim=*/true));
  push(stack, at::matmul(of_scores, key) * factor,
       at::matmul(of_scores.transpose(-2, -1), query) * factor,
       at::matmul((weights * mask).transpose(-2, -1), grad),
       bias && bias->defined() ? of_scores : at::Tensor());
}

}  // namespace recoup::test_device
