// An op's draw of random numbers, and its repetition: Note [The generator's gate].
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/Device.h>
#include <c10/core/DispatchKeySet.h>

#include <cstddef>
#include <optional>

#include "csrc/torch/compat/generators.h"
#include "csrc/torch/ops/traits.h"

namespace recoup::detail {

// The generator of a random op that is about to run, whose arguments are the last on the stack;
// none if its draw cannot be repeated.
std::optional<at::Generator> repeatable_generator(const OpTraits& traits, c10::DispatchKeySet keys,
                                                  c10::Device device,
                                                  const torch::jit::Stack& stack,
                                                  std::size_t argument_count);

// Begins the draw of that op.
void begin_draw(std::optional<Draw>& draw, const OpTraits& traits, const at::Generator& generator,
                torch::jit::Stack& stack, std::size_t argument_count);

// Runs the op with the draw that starts from that state; the program's generators do not change.
void draw_again(const c10::OperatorHandle& op, const OpTraits& traits, c10::DispatchKeySet keys,
                c10::Device device, const GeneratorState& state, torch::jit::Stack& stack);

}  // namespace recoup::detail
