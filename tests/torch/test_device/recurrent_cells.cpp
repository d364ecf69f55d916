#include "tests/torch/test_device/recurrent_cells.h"

#include <ATen/ATen.h>

#include <optional>

namespace recoup::test_device {
namespace {

using torch::jit::pop;
using torch::jit::push;
using torch::jit::Stack;

at::Tensor plus(at::Tensor sum, const std::optional<at::Tensor>& bias) {
  return bias && bias->defined() ? sum + *bias : sum;
}

std::optional<at::Tensor> pop_optional(Stack& stack) { return pop(stack).toOptional<at::Tensor>(); }

}  // namespace

void lstm_cell(Stack& stack) {
  const auto hidden_bias = pop_optional(stack);
  const auto input_bias = pop_optional(stack);
  const at::Tensor cx = pop(stack).toTensor();
  const at::Tensor hidden = pop(stack).toTensor();
  const at::Tensor input = pop(stack).toTensor();
  const auto gates = plus(plus(input + hidden, input_bias), hidden_bias).chunk(4, 1);
  const at::Tensor in = gates[0].sigmoid();
  const at::Tensor forget = gates[1].sigmoid();
  const at::Tensor cell = gates[2].tanh();
  const at::Tensor out = gates[3].sigmoid();
  const at::Tensor cy = forget * cx + in * cell;
  push(stack, out * cy.tanh(), cy, at::cat({in, forget, cell, out}, 1));
}

void lstm_cell_backward(Stack& stack) {
  const bool has_bias = pop(stack).toBool();
  const at::Tensor workspace = pop(stack).toTensor();
  const at::Tensor cy = pop(stack).toTensor();
  const at::Tensor cx = pop(stack).toTensor();
  const auto grad_cy = pop_optional(stack);
  const auto grad_hy = pop_optional(stack);
  const bool has_cy = grad_cy && grad_cy->defined();
  const bool has_hy = grad_hy && grad_hy->defined();
  if (!has_cy && !has_hy) {
    push(stack, at::Tensor(), at::Tensor(), at::Tensor());
    return;
  }
  const auto gates = workspace.chunk(4, 1);
  const at::Tensor &in = gates[0], &forget = gates[1], &cell = gates[2], &out = gates[3];
  const at::Tensor of_out = has_hy ? *grad_hy : at::zeros_like(cx);
  const at::Tensor tanh = cy.tanh();
  const at::Tensor of_cell = plus(of_out * out * (1 - tanh * tanh), grad_cy);
  const at::Tensor grad =
      at::cat({of_cell * cell * (1 - in) * in, of_cell * cx * (1 - forget) * forget,
               of_cell * in * (1 - cell * cell), of_out * tanh * (1 - out) * out},
              1);
  push(stack, grad, of_cell * forget, has_bias ? grad.sum(0) : at::Tensor());
}

void gru_cell(Stack& stack) {
  const auto hidden_bias = pop_optional(stack);
  const auto input_bias = pop_optional(stack);
  const at::Tensor hx = pop(stack).toTensor();
  const auto hidden = plus(pop(stack).toTensor(), hidden_bias).chunk(3, 1);
  const auto input = plus(pop(stack).toTensor(), input_bias).chunk(3, 1);
  const at::Tensor reset = (input[0] + hidden[0]).sigmoid();
  const at::Tensor update = (input[1] + hidden[1]).sigmoid();
  const at::Tensor fresh = (input[2] + reset * hidden[2]).tanh();
  push(stack, fresh + update * (hx - fresh), at::cat({reset, update, fresh, hx, hidden[2]}, 1));
}

void gru_cell_backward(Stack& stack) {
  const bool has_bias = pop(stack).toBool();
  const auto saved = pop(stack).toTensor().chunk(5, 1);
  const at::Tensor grad = pop(stack).toTensor();
  const at::Tensor &reset = saved[0], &update = saved[1], &fresh = saved[2], &hx = saved[3];
  const at::Tensor of_update = grad * (hx - fresh) * (1 - update) * update;
  const at::Tensor of_fresh = grad * (1 - update) * (1 - fresh * fresh);
  const at::Tensor of_reset = of_fresh * saved[4] * (1 - reset) * reset;
  const at::Tensor of_input = at::cat({of_reset, of_update, of_fresh}, 1);
  const at::Tensor of_hidden = at::cat({of_reset, of_update, of_fresh * reset}, 1);
  push(stack, of_input, of_hidden, grad * update, has_bias ? of_input.sum(0) : at::Tensor(),
       has_bias ? of_hidden.sum(0) : at::Tensor());
}

}  // namespace recoup::test_device
