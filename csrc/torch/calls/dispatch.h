// Where every op of the program that recoup watches comes in.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace recoup::detail {

// Runs the op under the eyes of the sessions that it concerns. `below`: of the call's keys those
// for Hook::proceed.
void handle(const c10::OperatorHandle& op, c10::DispatchKeySet below, torch::jit::Stack* stack);

// From now on ops of scopes come to `handle`: Hook::install, whose errors it has. Once is enough.
void watch_ops();

}  // namespace recoup::detail
