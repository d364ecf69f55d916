// An op on lists that runs for one tensor of each after the other.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <cstddef>
#include <vector>

#include "csrc/engine/in_parts.h"
#include "csrc/torch/payload.h"
#include "csrc/torch/session.h"
#include "csrc/torch/traits.h"

namespace recoup::detail {

// Note [Ops on lists]. Each part is an op of its own, on lists of one tensor; lists that are empty
// stay so.
class PartedCall {
 public:
  // They outlive it.
  PartedCall(Session& session, const c10::OperatorHandle& op, const OpTraits& traits,
             c10::DispatchKeySet keys, torch::jit::Stack& stack);
  // False: it was not run, and nothing has happened; it has to be run as a whole. A part that fails
  // for another reason than the budget leaves the lists as the kernel would: done up to there.
  [[nodiscard]] bool run();

 private:
  // Zero: they cannot be cut, or there is nothing to cut.
  [[nodiscard]] std::size_t length() const;
  [[nodiscard]] Part describe(std::size_t part, const EngineLock& lock) const;
  [[nodiscard]] bool begin(std::size_t count);
  void run_part(std::size_t part);

  Session& session_;
  const c10::OperatorHandle& op_;
  const OpTraits& traits_;
  const c10::DispatchKeySet keys_;
  torch::jit::Stack& stack_;
  const std::size_t argument_count_;
  const Arguments arguments_;
};

}  // namespace recoup::detail
