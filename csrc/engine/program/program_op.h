// ProgramOp: the life of the op that a program runs, as its caller sees it: begin, kernel, end.
#pragma once

#include <span>
#include <string_view>

#include "csrc/engine/base/op.h"
#include "csrc/engine/program/read_ahead.h"
#include "csrc/engine/program/slowdown.h"
#include "csrc/engine/program/write_behind.h"
#include "csrc/engine/reclaim/evictor.h"
#include "csrc/engine/reclaim/handover.h"
#include "csrc/engine/replay/freezer.h"
#include "csrc/engine/replay/records.h"
#include "csrc/engine/replay/replayer.h"
#include "csrc/engine/state/candidates.h"
#include "csrc/engine/state/context.h"
#include "csrc/engine/state/enough.h"
#include "csrc/engine/state/values.h"

namespace recoup::detail {

class ProgramOp {
 public:
  struct Parts {
    Values& values;
    Candidates& candidates;
    Evictor& evictor;
    Enough& enough;
    Replayer& replayer;
    Freezer& freezer;
    Records& records;
    WriteBehind& write_behind;
    ReadAhead& read_ahead;
    Handover& handover;
    const OutOfBudgetReporter& reporter;
  };
  // All arguments must outlive this object.
  ProgramOp(Context& context, const Parts& parts);

  // Makes the operands' values resident, pins them and stores their ids in `value`. If it throws,
  // the op has not begun: nothing is pinned, and abort must not be called. The caller owns the
  // name, which must live until the op ends.
  void begin(std::string_view name, std::span<Operand> operands);
  // The kernel that is about to run must not run again: Note [Attempts].
  void run_once() { enough_.run_once(); }
  // The kernel has failed and runs again.
  void begin_again();
  [[nodiscard]] const Handover& handover() const { return handover_; }
  // The kernel has got `nbytes` of overflow memory, and frees it.
  void overflow(OverflowKey key, Bytes nbytes);
  void free_overflow(OverflowKey key);
  // Why the engine would not keep a record with a payload; kNone if it would.
  [[nodiscard]] NoReplay why_unrecorded(const OpRecord& record) const {
    return records_.why_unrecorded(record);
  }
  // The op has ended. `uses` are the operands', and record.inputs and record.written refer to them.
  // Sets storages[i] to the new storage of fresh[i]. The storage of an operand that got other
  // memory must be invalid by now.
  void end(OpRecord& record, const OpUses& uses, std::span<const Operand> operands,
           std::span<StorageId> storages);
  // The op failed half way.
  void abort(std::span<const Operand> operands, const KernelLimits& limits = {});
  // Replaces the estimated cost of an op that has ended by its measured cost. `made`: the ticket of
  // one of its results, or an empty one. Note [Late costs] in program_op.cpp.
  void learn_cost(const ValueTicket& made, Nanoseconds estimate, Nanoseconds cost);

 private:
  void take_operands(std::span<Operand> operands);
  void release_operands(std::span<const Operand> operands) noexcept;
  void prepare(std::span<const Operand> operands, std::span<const StorageId> written);

  Context& context_;
  Lineage& lineage_;
  Values& values_;
  Candidates& candidates_;
  Evictor& evictor_;
  Enough& enough_;
  Replayer& replayer_;
  Freezer& freezer_;
  Records& records_;
  WriteBehind& write_behind_;
  ReadAhead& read_ahead_;
  Handover& handover_;
  Slowdown slowdown_;
};

}  // namespace recoup::detail
