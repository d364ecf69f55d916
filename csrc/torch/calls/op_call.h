// OpCall: runs one op of the program through a session.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "csrc/torch/backend/paged_results.h"
#include "csrc/torch/calls/fresh_results.h"
#include "csrc/torch/calls/in_place_try.h"
#include "csrc/torch/calls/kernel_frame.h"
#include "csrc/torch/calls/op_timing.h"
#include "csrc/torch/calls/operands.h"
#include "csrc/torch/compat/generators.h"
#include "csrc/torch/compat/settings.h"
#include "csrc/torch/ops/payload.h"
#include "csrc/torch/ops/traits.h"
#include "csrc/torch/session/session.h"
#include "csrc/torch/session/snapshots.h"

namespace recoup::detail {

// run() finds the storages, restores and pins their bytes, runs the kernel, records its results,
// and unpins.
class OpCall {
 public:
  // `others`: sessions of other devices that the op concerns, too. Each has an OpCall of its own,
  // within this one's kernel.
  OpCall(Session& session, const c10::OperatorHandle& op, const OpTraits& traits,
         c10::DispatchKeySet keys, torch::jit::Stack& stack, std::span<Session* const> others = {})
      : session_(session),
        op_(op),
        traits_(traits),
        keys_(keys),
        stack_(stack),
        argument_count_(op.schema().arguments().size()),
        base_(stack.size() - argument_count_),
        others_(others),
        operands_(session.tensors(), traits, keys),
        fresh_(session, operands_),
        in_place_(session) {}
  void run();
  // For an opaque op, whose kernel runs after this: restores its arguments and holds them in
  // `frame`. Each storage that it writes gets a new, non-recomputable version.
  void announce(KernelFrame& frame);

 private:
  enum class Results : std::uint8_t { kOnStack, kNone };
  // ---- before the kernel ----
  void prepare();
  [[nodiscard]] NoReplay why_not_replayed() const;
  // The first reason counts.
  void refuse_replay(NoReplay why) { why_ = why_ == NoReplay::kNone ? why : why_; }
  void define_operands();
  void fill(c10::StorageImpl& storage);
  void zero(c10::StorageImpl& storage);
  void begin(const EngineLock& lock);
  void prepare_kernel(const EngineLock& lock);
  void save_left_out(const EngineLock& lock);
  // ---- the kernel ----
  void run_until_it_fits();
  void run_kernel();
  void run_without_failure();
  void keep_draw(std::optional<Draw>& draw);
  void run_below();
  // The kernel ran out of memory only because of fragmentation: restores the state before the
  // kernel and compacts memory, so that the op can be tried again.
  void prepare_retry(Retry& retry);
  void put_arguments_back();
  void undo_draws();
  // Note [Overwritable operands]. A surrounding kernel may have the operands' addresses.
  [[nodiscard]] bool may_be_in_place() const {
    return traits_.overwritable && !framed_ && !leaves_out_ && others_.empty();
  }
  [[nodiscard]] bool prepare_in_place(std::optional<Bytes> asked);
  void run_in_place(const OutOfBudgetReport& report);
  // Whether memory of the kernel may be paged: Note [Paged results].
  [[nodiscard]] bool pageable() const {
    return session_.device().is_cpu() && !traits_.compiled && others_.empty();
  }
  // What is known of the kernel before it runs.
  [[nodiscard]] KernelLimits find_limits() const;
  void run_kernel_paged(const Paging& paging);
  void run_paged(Paging paging);
  // Whether this is a call of a compiled graph that must not run again.
  [[nodiscard]] bool is_once() const;
  // ---- after the kernel ----
  void finish(Results results);
  void fail() noexcept;
  void kernel_ended(const EngineLock& lock);
  void note_written(const EngineLock& lock);
  [[nodiscard]] OpRecord make_record(const OpUses& uses, const EngineLock& lock);
  void arm_storages();
  // For the frames of the surrounding kernels. hold_arguments() holds what the op reads, while the
  // op has it pinned. hold_results() holds what the op made, which may have to be restored.
  void hold_arguments(const EngineLock& lock);
  void hold_results();
  [[nodiscard]] Arguments on_stack() const {
    return Arguments(stack_.data() + base_, stack_.size() - base_);
  }

  Session& session_;
  const c10::OperatorHandle& op_;
  const OpTraits& traits_;
  const c10::DispatchKeySet keys_;
  torch::jit::Stack& stack_;
  const std::size_t argument_count_;
  const std::size_t base_;  // index of the first argument on the stack
  const std::span<Session* const> others_;

  bool leaves_out_ = false;         // traits_.left_out applies to this call
  bool framed_ = false;             // the op runs in a KernelFrame of this thread
  NoReplay why_ = NoReplay::kNone;  // why it is not replayed
  bool paged_ = false;              // memory of the kernel was paged, so it is not replayed
  bool ended_ = false;              // the op is recorded
  bool running_ = false;            // counted among the session's running kernels
  std::uint64_t serial_ = 0;
  MakerId maker_;  // invalid: attribution is off
  std::uint32_t line_ = Maker::kNone;
  Nanoseconds cost_{0};
  Nanoseconds room_before_{0};
  OpTiming timing_;  // with Capabilities::streams
  // Former content of what the op writes in passing: a kernel that runs out of memory may have
  // written it.
  Snapshots left_out_before_;
  std::uint32_t copies_ = 0;  // number of copies in the pool, in left_out_before_
  GeneratorState random_;
  std::optional<OneThread> one_thread_;  // from the kernel until the op is recorded
  KernelLimits limits_;
  Operands operands_;
  FreshResults fresh_;
  InPlaceTry in_place_;
};

}  // namespace recoup::detail
