// Records: what an op that has ended leaves behind: values for what it made, versions of what it
// wrote, and an op to replay.
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
// A write to a value with lineage makes a new value in the same place; the old one stays as an
// evicted value, with its lineage and without a storage (Coop's recomputable in-place):
//
//   before   storage s -- v1 [block] <- op1
//   after    storage s -- v2 [block] <- op2, which reads v1
//                         v1 [evicted, dead] <- op1
//
// A write to a non-recomputable value makes a non-recomputable value: what the non-recomputable
// value held before is gone (Note [Freeze] saw to it).
//
// Note [Copy on write]
// What DTR and DTE do with a write, as an ablation of recomputable in-place (Note [Versions]): the
// storage moves to a new block before the op writes it, so the op needs room for both, and what is
// written often wanders through the pool. The block from before stays for the kernel's time; then
// it belongs to the old version, which may be evicted like any other value, or is free:
//
//   before   s -- v1 [block a]
//   kernel   s -- v1 [block b, written]      [block a: what v1 was]
//   after    s -- v2 [block b]               v1 [block a], replayable; or a non-recomputable
//   value's, which goes
//
// What is pinned, escaped or from outside the pool stays where it is.
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
  // All must outlive it.
  Records(Context& context, const Parts& parts);

  // Note [Copy on write], of an op's arguments, which are pinned once each. Throws OutOfBudget;
  // what is copied by then stays so until it is written or discarded.
  void copy_before_write(std::span<const StorageId> storages);
  void discard_copies(std::span<const StorageId> storages) noexcept;

  // Whether a record with a payload would be kept: not when nothing that it made is worth it.
  [[nodiscard]] bool recordable(const OpRecord& record) const;
  // The op has ended: `storages[i]` is the new storage of fresh[i].
  void finish(const OpRecord& record, std::span<StorageId> storages);
  // What an op may have written, or wrote only in passing, holds nobody knows what: a
  // non-recomputable value.
  void make_unknown(std::span<const WrittenStorage> written);
  // Priced by its bytes, an op costs the same in every run.
  [[nodiscard]] Nanoseconds cost_by_bytes(const OpRecord& record) const;

 private:
  void supersede(StorageId storage, OpId op, bool overwritten);
  void record_non_recomputables(const OpRecord& record, std::span<StorageId> storages);
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
