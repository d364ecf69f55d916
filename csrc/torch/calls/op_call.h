// OpCall: runs one op of the program through a session.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "csrc/torch/calls/call.h"
#include "csrc/torch/calls/fresh_results.h"
#include "csrc/torch/calls/live_kernel.h"
#include "csrc/torch/calls/operands.h"
#include "csrc/torch/compat/settings.h"
#include "csrc/torch/frames/kernel_frame.h"
#include "csrc/torch/ops/payload.h"
#include "csrc/torch/session/session.h"

namespace recoup::detail {

// run() finds the storages, restores and pins their bytes, runs the kernel, records its results,
// and unpins.
class OpCall {
 public:
  // `others`: sessions of other devices that the op concerns, too. Each has an OpCall of its own,
  // within this one's kernel.
  OpCall(Session& session, const Call& call, std::span<Session* const> others = {})
      : session_(session),
        call_(call),
        operands_(session.tensors(), call.traits, call.keys),
        fresh_(session, operands_),
        kernel_(session, call, operands_, others, &run_in) {}
  void run();
  // For an opaque op, whose kernel runs after this: restores its arguments and holds them in
  // `frame`. Each storage that it writes gets a new, non-recomputable version.
  void announce(KernelFrame& frame);

 private:
  static void run_in(const Call& call, std::span<Session* const> sessions) {
    OpCall(*sessions.front(), call, sessions.subspan(1)).run();
  }
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
  // ---- after the kernel ----
  void finish(Results results);
  void fail() noexcept;
  void kernel_ended(const EngineLock& lock);
  void note_written(const EngineLock& lock);
  [[nodiscard]] OpRecord make_record(const OpUses& uses, Nanoseconds cost, std::uint32_t copies,
                                     const EngineLock& lock);
  void arm_storages();
  // For the frames of the surrounding kernels. hold_arguments() holds what the op reads, while the
  // op has it pinned. hold_results() holds what the op made, which may have to be restored.
  void hold_arguments(const EngineLock& lock);
  void hold_results();

  Session& session_;
  const Call& call_;

  bool leaves_out_ = false;         // OpTraits::left_out applies to this call
  bool framed_ = false;             // the op runs in a KernelFrame of this thread
  NoReplay why_ = NoReplay::kNone;  // why it is not replayed
  bool ended_ = false;              // the op is recorded
  bool running_ = false;            // counted among the session's running kernels
  std::uint64_t serial_ = 0;
  MakerId maker_;  // invalid: attribution is off
  std::uint32_t line_ = Maker::kNone;
  Nanoseconds room_before_{0};
  std::optional<OneThread> one_thread_;  // from the kernel until the op is recorded
  Operands operands_;
  FreshResults fresh_;
  LiveKernel kernel_;
};

}  // namespace recoup::detail
