// Writes the payload of an op that has run, so that it can be replayed.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <memory>

#include "csrc/torch/calls/fresh_results.h"
#include "csrc/torch/calls/operands.h"
#include "csrc/torch/compat/generators.h"
#include "csrc/torch/ops/payload.h"
#include "csrc/torch/ops/traits.h"
#include "csrc/torch/session/session.h"

namespace recoup::detail {

class PayloadWriter {
 public:
  // The op's data, all of which must outlive the writer.
  struct Op {
    const c10::OperatorHandle& handle;
    const OpTraits& traits;
    c10::DispatchKeySet keys;
    Operands& operands;
    const FreshResults& fresh;
    Arguments results;
    bool overwritable = false;  // OpCall::may_be_in_place
  };
  PayloadWriter(Session& session, const Op& op) : session_(session), op_(op) {}

  // Null if an argument prevents a replay. Numbers the operands. `random`: the generator's state
  // before the op's draw.
  [[nodiscard]] std::unique_ptr<Payload> write(GeneratorState random, const EngineLock& lock);

 private:
  void number_storages();
  void find_cost_key();
  void describe_coverage();
  void describe_arguments();
  void describe_list(const c10::IValue& list, std::size_t argument);
  void describe_composite(const at::Tensor& tensor, std::size_t argument, std::int64_t element);
  void describe_tensor(const at::Tensor& tensor, std::size_t argument, std::int64_t element);
  void set_source(TensorArgument& shape, const at::Tensor& tensor);

  Session& session_;
  const Op op_;
  std::unique_ptr<Payload> payload_;
  c10::SmallVector<const c10::TensorImpl*, 0> composites_;  // one for each in the payload
  bool repeatable_ = true;
};

}  // namespace recoup::detail
