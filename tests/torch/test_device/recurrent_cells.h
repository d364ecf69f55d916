// The cells of recurrent layers, whose ops exist only on devices: computed on the CPU, with the
// arguments and results of those ops.
#pragma once

#include <ATen/core/stack.h>

namespace recoup::test_device {

void lstm_cell(torch::jit::Stack& stack);
void lstm_cell_backward(torch::jit::Stack& stack);
void gru_cell(torch::jit::Stack& stack);
void gru_cell_backward(torch::jit::Stack& stack);

}  // namespace recoup::test_device
