// Where every op of the program that recoup watches comes in.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace recoup::detail {

// Runs the op under the eyes of the sessions that it concerns. `keys`: of the call; those above
// recoup's own are left out.
void handle(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

}  // namespace recoup::detail
