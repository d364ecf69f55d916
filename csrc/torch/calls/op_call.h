// One op of the program on its way through recoup.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "csrc/torch/calls/fresh_results.h"
#include "csrc/torch/calls/gpu_timing.h"
#include "csrc/torch/calls/kernel_frame.h"
#include "csrc/torch/calls/operands.h"
#include "csrc/torch/compat/generators.h"
#include "csrc/torch/ops/payload.h"
#include "csrc/torch/ops/traits.h"
#include "csrc/torch/session/session.h"
#include "csrc/torch/session/snapshots.h"

namespace recoup::detail {

// run() is the story: find the storages, bring their bytes back and pin them, run the kernel, give
// what it made a record, unpin.
class OpCall {
 public:
  // `others`: sessions of other devices that the op concerns too; each has an OpCall of its own,
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
        fresh_(session, operands_) {}
  void run();
  // For a guest, whose kernel runs after this: its arguments are brought back and held for it, and
  // what it writes is a new version, a non-recomputable value.
  void announce(KernelFrame& frame);

 private:
  enum class Results : std::uint8_t { kOnStack, kNone };
  // ---- before the kernel ----
  void prepare();
  void begin(const EngineLock& lock);
  void prepare_kernel(const EngineLock& lock);
  void save_left_out(const EngineLock& lock);
  // ---- the kernel ----
  void run_until_it_fits();
  void run_kernel();
  void keep_draw(std::optional<Draw>& draw);
  void run_below();
  // The kernel ran out of memory only because free memory was in pieces: puts everything back as it
  // was, in order, so that the op can be tried again.
  void prepare_retry(Retry& retry);
  [[nodiscard]] bool may_run_twice() const;
  // Of a compiled graph: this call of it is not run again.
  [[nodiscard]] bool is_once() const;
  // ---- behind it ----
  void finish(Results results);
  void fail() noexcept;
  void kernel_ended(const EngineLock& lock);
  void note_written(const EngineLock& lock);
  [[nodiscard]] OpRecord make_record(const OpUses& uses, const EngineLock& lock);
  void arm_storages();
  // For the frames of the kernels around it: what it reads, while that is pinned for the op; and
  // what it made, which may have to be brought back.
  void hold_arguments(const EngineLock& lock);
  void hold_results();
  void keep_descriptions();
  template <class Function>
  void for_each_known(Arguments values, const EngineLock& lock, Function&& function);
  [[nodiscard]] Arguments on_stack() const {
    return Arguments(stack_.data() + base_, stack_.size() - base_);
  }

  Session& session_;
  const c10::OperatorHandle& op_;
  const OpTraits& traits_;
  const c10::DispatchKeySet keys_;
  torch::jit::Stack& stack_;
  const std::size_t argument_count_;
  const std::size_t base_;  // of the arguments on the stack
  const std::span<Session* const> others_;

  bool leaves_out_ = false;  // traits_.left_out applies to this call
  bool framed_ = false;      // it runs in a frame of a kernel of this thread
  bool repeatable_ = false;
  bool ended_ = false;    // it is on record
  bool running_ = false;  // counted among the session's kernels
  std::uint64_t serial_ = 0;
  MakerId maker_;  // none: nobody wants to know
  std::uint32_t line_ = Maker::kNone;
  Nanoseconds cost_{0};
  Nanoseconds room_before_{0};
  GpuTiming timing_;
  // What the op writes in passing, from before: a kernel that runs out of memory may have done so.
  Snapshots left_out_before_;
  std::uint32_t copies_ = 0;  // in the pool, of left_out_before_
  GeneratorState random_;
  Operands operands_;
  FreshResults fresh_;
};

}  // namespace recoup::detail
