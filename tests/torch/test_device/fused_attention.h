// Fused attention, whose ops exist only on devices: computed on the CPU, with the arguments and
// results of those ops. The flash kernel has no dropout here. The efficient kernel returns the seed
// of its dropout on the CPU, as CUDA's does.
#pragma once

#include <ATen/core/stack.h>

namespace recoup::test_device {

void flash_attention(torch::jit::Stack& stack);
void flash_attention_backward(torch::jit::Stack& stack);
void efficient_attention(torch::jit::Stack& stack);
void efficient_attention_backward(torch::jit::Stack& stack);

}  // namespace recoup::test_device
