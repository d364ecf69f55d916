// An op on lists that runs for some tensors of each after the others.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <cstddef>
#include <vector>

#include "csrc/engine/program/in_parts.h"
#include "csrc/torch/ops/payload.h"
#include "csrc/torch/ops/traits.h"
#include "csrc/torch/session/session.h"
#include "recoup/types.h"

namespace recoup::detail {

// Note [Ops on lists]. Each part is an op of its own; lists that are empty stay so. On the CPU a
// part has one tensor of each list. On a GPU it has as many as keep the launches of kernels few: up
// to kPartBytes and kPartTensors. Where the lists are cut depends on nothing else, so a trace has
// the parts of every run.
class PartedCall {
 public:
  // They outlive it.
  PartedCall(Session& session, const c10::OperatorHandle& op, const OpTraits& traits,
             c10::DispatchKeySet keys, torch::jit::Stack& stack);
  // False: it was not run, and nothing has happened; it has to be run as a whole. A part that fails
  // for another reason than the budget leaves the lists as the kernel would: done up to there.
  [[nodiscard]] bool run();

 private:
  static constexpr Bytes kPartBytes{64 << 20};
  static constexpr std::size_t kPartTensors = 64;
  // Of one part in the lists.
  struct Range {
    std::size_t begin = 0;
    std::size_t end = 0;
  };
  // Of the lists. Zero: they cannot be cut.
  [[nodiscard]] std::size_t length() const;
  [[nodiscard]] bool is_even_on_gpu(const c10::IValue& list) const;
  [[nodiscard]] bool is_scalar_of_host(const at::Tensor& tensor, std::size_t argument) const;
  // Of all lists at that index.
  [[nodiscard]] Bytes bytes_at(std::size_t index) const;
  void cut(std::size_t length);
  [[nodiscard]] Part describe(Range part, const EngineLock& lock) const;
  [[nodiscard]] bool begin();
  void run_part(Range part);

  Session& session_;
  const c10::OperatorHandle& op_;
  const OpTraits& traits_;
  const c10::DispatchKeySet keys_;
  torch::jit::Stack& stack_;
  const std::size_t argument_count_;
  const Arguments arguments_;
  std::vector<Range> parts_;
};

}  // namespace recoup::detail
