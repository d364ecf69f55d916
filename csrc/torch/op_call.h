// One op of the program on its way through recoup.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/util/SmallVector.h>

#include <memory>

#include "csrc/torch/payload.h"
#include "csrc/torch/session.h"
#include "csrc/torch/traits.h"

namespace recoup::detail {

// run() is the story: find the storages, bring their bytes back and pin them, run the kernel, give
// what it made a record, unpin.
class OpCall {
 public:
  OpCall(Session& session, const c10::OperatorHandle& op, const OpTraits& traits,
         c10::DispatchKeySet keys, torch::jit::Stack& stack);
  void run();

 private:
  void find_operands();
  void add_operand(const at::Tensor& tensor, std::size_t argument);
  void add_storage_operand(const c10::Storage& storage);
  void prepare();
  void run_until_it_fits();
  void run_kernel();
  void kernel_ended(const Session::Lock& lock);
  // The kernel ran out of memory only because free memory was in pieces: puts everything back as it
  // was, in order, so that the op can be tried again.
  void prepare_retry(Retry& retry);
  void finish();
  void fail() noexcept;
  void save_left_out();
  void restore_left_out() noexcept;
  void collect_fresh(const Session::Lock& lock);
  void add_fresh(const at::Tensor& tensor, std::uint16_t result, const Session::Lock& lock);
  [[nodiscard]] std::unique_ptr<Payload> make_payload(const Session::Lock& lock);
  void describe_arguments(Payload& payload);
  void describe_list(const c10::IValue& list, std::size_t argument, Payload& payload);
  void describe_tensor(const at::Tensor& tensor, std::size_t argument, std::int64_t element,
                       Payload& payload);
  void set_source(TensorArgument& shape, const at::Tensor& tensor);
  void arm_operands();
  void note_written(const Session::Lock& lock);
  [[nodiscard]] Operand* operand_of(const c10::StorageImpl* impl);
  [[nodiscard]] bool writes(std::size_t argument) const {
    return argument < 64 && ((traits_.writes >> argument) & 1U) != 0;
  }
  [[nodiscard]] bool leaves_out(std::size_t argument) const {
    return leaves_out_ && argument < 64 && ((traits_.left_out >> argument) & 1U) != 0;
  }

  Session& session_;
  const c10::OperatorHandle& op_;
  const OpTraits& traits_;
  c10::DispatchKeySet keys_;
  torch::jit::Stack& stack_;
  std::size_t argument_count_;
  std::size_t base_;  // of the arguments on the stack

  bool foreign_ = false;     // an argument is of a kind that we do not manage
  bool leaves_out_ = false;  // traits_.left_out applies to this call
  bool repeatable_ = false;
  bool running_ = false;  // counted among the session's kernels
  std::uint64_t serial_ = 0;
  Nanoseconds cost_{0};
  Nanoseconds room_before_{0};
  // What the op writes in passing, from before: a kernel that runs out of memory may have done so.
  std::vector<std::pair<void*, std::vector<char>>> left_out_before_;
  GeneratorState random_;
  // Their owners are StorageImpls, their indices those in the payload: among inputs, or among what
  // is written.
  c10::SmallVector<Operand, 4> operands_;
  // The arguments as they were: kernels consume the stack.
  c10::SmallVector<c10::IValue, 6> arguments_;
  c10::SmallVector<FreshStorage, 2> fresh_;  // their handles are StorageRecords
  c10::SmallVector<std::uint16_t, 2> fresh_results_;
};

}  // namespace recoup::detail
