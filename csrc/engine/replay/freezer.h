// Freezer: makes dependents independent of a content before it changes.
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
// A non-recomputable value (source) is about to change, such as a parameter in optimizer.step, or
// to escape. From then on nothing may be recomputed from its current content. The engine walks
// forward from it through values without bytes:
//
//   source --> a (evicted, dead) --> b (resident)    b becomes non-recomputable; a is lost
//          \-> c (evicted, user holds it)            c is replayed, then becomes non-recomputable
//
// Stopping at the first lost value would be wrong: b could be evicted later and recomputed from the
// new parameter. Stopping at a resident value that a kernel is overwriting would be wrong, too:
// nothing can be recomputed from it once it is non-recomputable. If restoring c does not fit or
// costs too much, the old content is kept instead, as long as it has dependents: in the spill tier
// if that has or accepts it, else as a private copy.
//
// If an evicted gradient depends on a dead b, b would stay as a non-recomputable value until the
// gradient is used. So evicted values beyond dead ones are restored too: then b is not needed.
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
  // All arguments must outlive this object.
  Freezer(Context& context, const Parts& parts);

  // Where the old content may be kept for later replays.
  enum class OldVersion : std::uint8_t {
    kResident,           // a private copy in the pool
    kResidentOrSpilled,  // also in the storage's own slot of the spill tier
  };
  // Ensures that no evicted value is recomputed from the storage's bytes after they change. Throws
  // OutOfBudget.
  void freeze_or_copy(StorageId storage, OldVersion old);
  // Ensures it for a storage that an op will write. Called before the op's arguments are acquired.
  void before_write(StorageId storage, OldVersion old = OldVersion::kResidentOrSpilled);
  // An op is about to change the storage in place by other values that it reads: Note [State].
  void make_state(StorageId storage);
  // Marks the storages as written by a kernel that is about to run. False: one of them needs
  // before_write again, with nothing pinned.
  [[nodiscard]] bool start_writing(std::span<const StorageId> storages);

 private:
  bool keep_old(ValueId source, OldVersion old);
  bool restore_cheaply(ValueId source, std::span<const ValueId> needed);
  void restore_and_freeze(ValueId source, const Effort& effort);
  [[nodiscard]] std::vector<Values::Hold> restore_dependents(ValueId source, const Effort& effort);
  void keep_copy(ValueId source);

  Context& context_;
  Lineage& lineage_;
  Values& values_;
  NonRecomputables& non_recomputables_;
  Mover& mover_;
  Room& room_;
  Replayer& replayer_;
  Spiller& spiller_;
  Nanoseconds wasted_{0};  // cost of failed attempts: Note [Restoring cheaply] in freezer.cpp
};

}  // namespace recoup::detail
