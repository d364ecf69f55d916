// Records: records a finished op: values for what it made, versions of what it wrote, and the op
// itself for replays.
#pragma once

#include <span>

#include "csrc/engine/base/op.h"
#include "csrc/engine/reclaim/mover.h"
#include "csrc/engine/reclaim/room.h"
#include "csrc/engine/state/candidates.h"
#include "csrc/engine/state/context.h"
#include "csrc/engine/state/values.h"
#include "csrc/engine/state/verifier.h"

namespace recoup::detail {

// Note [Versions]
// A write to a value with lineage makes a new value in the same place. The old one stays as an
// evicted value, with its lineage and without a storage (Coop's recomputable in-place):
//
//   before   storage s -- v1 [block] <- op1
//   after    storage s -- v2 [block] <- op2, which reads v1
//                         v1 [evicted, dead] <- op1
//
// A write to a non-recomputable value makes a non-recomputable value. The content from before is
// gone; Note [Freeze] has made its dependents independent of it.
//
// Note [Copy on write]
// How DTR and DTE handle a write, as an ablation of recomputable in-place (Note [Versions]): the
// storage moves to a new block before the op writes it. So the op needs room for both blocks, and a
// storage that is written often wanders through the pool. The old block is kept while the kernel
// runs. Then it belongs to the old version, which may be evicted like any other value, or it is
// freed:
//
//   before   s -- v1 [block a]
//   kernel   s -- v1 [block b, written]      [block a: content of v1]
//   after    s -- v2 [block b]               v1 [block a], or block a is free if v1 was a source
//
// Storages that are pinned, escaped or outside the pool stay in place.
class Records {
 public:
  struct Parts {
    Values& values;
    Candidates& candidates;
    Verifier& verifier;
    Mover& mover;
    Room& room;
    Enough& enough;
  };
  // All arguments must outlive this object.
  Records(Context& context, const Parts& parts);

  // Note [Copy on write]: moves written arguments of an op, which are pinned once each, to new
  // blocks. Throws OutOfBudget; copies made so far stay until they are written or discarded.
  void copy_before_write(std::span<const StorageId> storages);
  void discard_copies(std::span<const StorageId> storages) noexcept;

  // Why the engine would not keep a record with a payload; kNone if it would.
  [[nodiscard]] NoReplay why_unrecorded(const OpRecord& record) const;
  // Records an op that has ended. Sets storages[i] to the new storage of fresh[i].
  void finish(const OpRecord& record, std::span<StorageId> storages);
  // Makes the values of these storages non-recomputable, because their content is unknown: a failed
  // op may have written them, or a replay leaves out the write.
  void make_unknown(std::span<const WrittenStorage> written);
  // The cost of an op by the bytes that it reads and makes: the same in every run.
  [[nodiscard]] Nanoseconds cost_by_bytes(const OpRecord& record) const;

 private:
  void supersede(StorageId storage, OpId op, bool overwritten, NoReplay why);
  void record_non_recomputables(const OpRecord& record, std::span<StorageId> storages,
                                NoReplay why);
  void record_op(const OpRecord& record, std::span<StorageId> storages);
  void bound_metadata();
  void touch(ValueId id) {
    lineage_[id].last_access = context_.now;
    candidates_.touch(id);
  }

  Context& context_;
  Lineage& lineage_;
  Values& values_;
  Candidates& candidates_;
  Verifier& verifier_;
  Mover& mover_;
  Room& room_;
  Enough& enough_;
  std::ptrdiff_t metadata_bound_;
};

}  // namespace recoup::detail
