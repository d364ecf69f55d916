// LiveKernel: runs the kernel of an op of the program, if necessary several times.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "csrc/engine/program/program_kernel.h"
#include "csrc/torch/calls/call.h"
#include "csrc/torch/calls/in_place_try.h"
#include "csrc/torch/calls/op_timing.h"
#include "csrc/torch/calls/operands.h"
#include "csrc/torch/compat/generators.h"
#include "csrc/torch/session/session.h"
#include "csrc/torch/session/snapshots.h"

namespace recoup::detail {

class LiveKernel final : public ProgramKernel {
 public:
  // Runs the same call in the sessions of other devices that the op concerns.
  using RunInOthers = void (*)(const Call& call, std::span<Session* const> others);
  // `others`: those sessions. All arguments must outlive this object.
  LiveKernel(Session& session, const Call& call, Operands& operands,
             std::span<Session* const> others, RunInOthers run_in_others)
      : session_(session),
        call_(call),
        operands_(operands),
        others_(others),
        run_in_others_(run_in_others),
        in_place_(session) {}

  // Whether the op concerns no other session.
  [[nodiscard]] bool alone() const { return others_.empty(); }
  // Before ProgramOp::begin, when the operands are known.
  void find_limits();
  // `may_be`: whether the op's arguments are such that a result may take an operand's block: Note
  // [Overwritable operands].
  void set_in_place(bool may_be) { may_be_in_place_ = may_be; }
  [[nodiscard]] bool may_be_in_place() const { return may_be_in_place_; }
  // Before the kernel of an op that begins no capture: the stream of the op, which is not captured.
  void set_uncaptured(cuda::Stream stream) { uncaptured_ = stream; }
  // After ProgramOp::begin: saves what the kernel may change and needs again if it is repeated.
  void begin(const EngineLock& lock);
  // Runs the kernel until it fits. Throws PoolOutOfMemory.
  void run_in_budget();

  // ---- after the kernel ----
  // Frees what `begin` saved. Returns the number of copies that were in the pool.
  std::uint32_t end(const EngineLock& lock) noexcept;
  // Instead of end: the op failed, and what the kernel wrote in passing is undone.
  void fail(const EngineLock& lock) noexcept;
  // The kernel's time, without its failed runs.
  [[nodiscard]] Nanoseconds cost() const { return cost_; }
  // On a device with streams: how the op is timed; otherwise null.
  [[nodiscard]] OpTiming* timing() { return timing_ ? &*timing_ : nullptr; }
  // The state of the generator before the kernel drew from it.
  [[nodiscard]] GeneratorState take_random() { return std::move(random_); }
  // Why the kernel cannot be replayed; kNone if it did nothing that prevents this.
  [[nodiscard]] NoReplay why_not_replayed() const { return why_; }
  // Whether the kernel had overflow memory, so that the op is not replayed.
  [[nodiscard]] bool overflows() const { return overflows_; }
  // Whether this is a call of a compiled graph that must not run again.
  [[nodiscard]] bool is_once() const;
  [[nodiscard]] KernelLimits limits() const override;

 private:
  // ---- OpKernel ----
  std::optional<OutOfBudgetReport> run(const Attempt& attempt) override;
  bool prepare(const Attempt& next, const std::function<bool()>& measure) override;
  [[nodiscard]] std::vector<ValueId> overwritable() override;
  [[nodiscard]] std::span<const Operand> operands() const override { return operands_.all(); }

  void run_kernel();
  void run_overflowing(const Attempt& attempt);
  void run_without_failure();
  void run_below();
  void keep_draw(std::optional<Draw>& draw);
  void save_left_out(const EngineLock& lock);
  void put_arguments_back();
  void undo_draws();

  Session& session_;
  const Call& call_;
  Operands& operands_;
  const std::span<Session* const> others_;
  const RunInOthers run_in_others_;
  bool may_be_in_place_ = false;
  std::optional<cuda::Stream> uncaptured_;
  bool overflows_ = false;
  NoReplay why_ = NoReplay::kNone;
  KernelLimits limits_;  // as far as they are known before the kernel runs
  Nanoseconds cost_{0};
  GeneratorState random_;
  std::optional<OpTiming> timing_;  // with Capabilities::streams
  // Former content of what the op writes in passing: a kernel that runs out of memory may have
  // written it.
  Snapshots left_out_before_;
  InPlaceTry in_place_;
};

}  // namespace recoup::detail
