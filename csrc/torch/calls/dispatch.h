// Entry of every op of the program that recoup watches.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace recoup::detail {

// Runs the op through the sessions that it concerns. `below`: the keys for Hook::proceed.
void handle(const c10::OperatorHandle& op, c10::DispatchKeySet below, torch::jit::Stack* stack);

// Routes ops of scopes to `handle` from now on. Throws what Hook::install throws. Later calls do
// nothing.
void watch_ops();

}  // namespace recoup::detail
