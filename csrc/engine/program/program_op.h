// ProgramOp: the life of the op that a program runs now, as whoever runs it sees it: begin, kernel,
// end.
#pragma once

#include <span>
#include <string_view>

#include "csrc/engine/base/op.h"
#include "csrc/engine/program/read_ahead.h"
#include "csrc/engine/program/write_behind.h"
#include "csrc/engine/reclaim/evictor.h"
#include "csrc/engine/reclaim/room.h"
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
    Room& room;
    Replayer& replayer;
    Freezer& freezer;
    Records& records;
    WriteBehind& write_behind;
    ReadAhead& read_ahead;
  };
  // All must outlive it.
  ProgramOp(Context& context, const Parts& parts);

  // Makes the operands' values resident, pins them and names them in `value`. When it throws, the
  // op has not begun: nothing is pinned, and there is nothing to abort. The name is the caller's,
  // and must live until the op ends.
  void begin(std::string_view name, std::span<Operand> operands);
  // The kernel that is about to run must not be run again by retry.
  void run_once() { enough_.run_once(); }
  // Its kernel failed only because free memory was in pieces: makes `need` bytes free, if that is
  // possible, and brings together what is. False: less is free, and nothing is left to evict.
  [[nodiscard]] bool retry(std::span<const Operand> operands, Bytes need);
  // Whether a record with a payload would be kept: not when nothing that it made is worth it.
  [[nodiscard]] bool recordable(const OpRecord& record) const {
    return records_.recordable(record);
  }
  // It is done. `uses` are the operands', and record.inputs and record.written refer to them;
  // `storages[i]` is the new storage of fresh[i]. An operand's storage is invalid by now when it is
  // no longer what it was.
  void end(OpRecord& record, const OpUses& uses, std::span<const Operand> operands,
           std::span<StorageId> storages);
  // It failed half way.
  void abort(std::span<const Operand> operands);
  // One that ended with an estimate of its cost took so long; `made` is the ticket of one of its
  // results, or of none. Note [Late costs] in program_op.cpp.
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
  Room& room_;
  Replayer& replayer_;
  Freezer& freezer_;
  Records& records_;
  WriteBehind& write_behind_;
  ReadAhead& read_ahead_;
};

}  // namespace recoup::detail
