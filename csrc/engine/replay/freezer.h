// Freezer: what must happen to a content before it changes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "csrc/engine/reclaim/mover.h"
#include "csrc/engine/reclaim/room.h"
#include "csrc/engine/replay/replayer.h"
#include "csrc/engine/state/context.h"
#include "csrc/engine/state/non_recomputables.h"
#include "csrc/engine/state/values.h"
#include "csrc/engine/tier/spiller.h"

namespace recoup::detail {

// Note [Freeze]
// A non-recomputable value is about to change (a parameter in optimizer.step) or to be seen from
// outside, so nothing may be recomputed from what it holds now, ever after. Walking forward from it
// through values without bytes:
//
//   non-recomputable value --> a (evicted, dead) --> b (resident)        b becomes a
//   non-recomputable value; a is lost
//        \-> c (evicted, user holds it)                c is rematerialized, then becomes a
//        non-recomputable value
//
// Stopping at the first lost value would be wrong: b could be evicted later and recomputed from the
// new parameter. So would be stopping at a resident value that a kernel is writing over: nothing
// can be recomputed from it as soon as it is a non-recomputable value. Where getting c back does
// not fit, or costs too much, the old content is kept as a private copy instead, for as long as
// something hangs on it; where the spill tier has the old content, or takes it, it is kept there.
//
// A dead b on which an evicted gradient hangs would be a non-recomputable value that stays until
// somebody asks for the gradient. So what is evicted behind dead values is brought back too: then
// nobody needs b.
class Freezer {
 public:
  struct Parts {
    Values& values;
    NonRecomputables& non_recomputables;
    Mover& mover;
    Room& room;
    Replayer& replayer;
    Spiller& spiller;
  };
  // All must outlive it.
  Freezer(Context& context, const Parts& parts);

  // Where the old content may be if something is to be recomputed from it still.
  enum class OldVersion : std::uint8_t {
    kResident,           // a private copy in the pool
    kResidentOrSpilled,  // the storage's own slot in the spill tier, too
  };
  // Nothing evicted may be recomputed from what the storage holds. Throws OutOfBudget.
  void freeze_or_copy(StorageId storage, OldVersion old);
  // The same for a storage that an op will write, before its arguments are acquired.
  void before_write(StorageId storage, OldVersion old = OldVersion::kResidentOrSpilled);
  // An op is about to change it in place by other values that it reads: Note [State].
  void make_state(StorageId storage);
  // A kernel that writes these storages is about to run. False: one of them has to be given to
  // before_write again, with nothing pinned.
  [[nodiscard]] bool start_writing(std::span<const StorageId> storages);
  // It does not run after all.
  void stop_writing(std::span<const StorageId> storages) noexcept;

 private:
  bool keep_old(ValueId source, OldVersion old);
  bool restore_cheaply(ValueId source, const std::vector<ValueId>& needed);
  void restore_and_freeze(ValueId source, const Effort& effort);
  void restore_dependents(ValueId source, const Effort& effort, std::vector<ValueId>& held);
  void keep_copy(ValueId source);

  Context& context_;
  Lineage& lineage_;
  Values& values_;
  NonRecomputables& non_recomputables_;
  Mover& mover_;
  Room& room_;
  Replayer& replayer_;
  Spiller& spiller_;
  Nanoseconds wasted_{0};  // by attempts that failed: Note [Restoring cheaply] in freezer.cpp
};

}  // namespace recoup::detail
