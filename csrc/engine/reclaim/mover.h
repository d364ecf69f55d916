// Mover: moves blocks within the pool, so that free bytes come together or storages lie well.
#pragma once

#include <optional>
#include <span>

#include "csrc/engine/base/reclaimer.h"
#include "csrc/engine/state/context.h"
#include "csrc/engine/state/pages.h"
#include "csrc/engine/state/values.h"
#include "csrc/pool/compactor.h"

namespace recoup::detail {

class Mover final : public Reclaimer {
 public:
  // All must outlive it.
  Mover(Context& context, Values& values, Pages& pages);

  // Whether the block of this owner may move.
  [[nodiscard]] bool movable(ValueId owner) const {
    return owner.valid() && context_.lineage[owner].movable();
  }
  // Moves until `size` bytes are free in one piece, at any price; false: that is impossible.
  bool bring_together(Bytes size);
  // Moves everything as far down as it goes.
  void slide();
  // Copies a storage to a block that nobody owns and gives it that. Returns the one from before,
  // which is nobody's then; invalid, and nothing done, when the storage refuses.
  BlockId relocate(StorageId id, BlockId to);
  // To the low end, a non-recomputable value that is written again and again: once a storage.
  void place_low(StorageId id);
  // TestAids::shake: everything that may move lies elsewhere afterwards, if there is room.
  void move_everything();

  // ---- Reclaimer ----
  std::optional<Nanoseconds> offer(const RoomRequest& request, Nanoseconds lost,
                                   std::optional<Nanoseconds> limit) override;
  void take(Nanoseconds& lost) override;

 private:
  [[nodiscard]] std::optional<CompactionPlan> plan(Bytes size, Bytes limit);
  bool do_moves(const CompactionPlan& plan);
  bool move_all(std::span<const Move> moves);
  [[nodiscard]] std::optional<PoolOffset> another_place(BlockId id, Zone zone);
  void poison_old(PoolOffset from, PoolOffset to, Bytes size);

  Context& context_;
  Pool& pool_;
  Values& values_;
  Pages& pages_;
  Compactor compactor_;
  CompactionPlan offered_;
  bool moved_low_ = false;  // by move_everything, last
};

}  // namespace recoup::detail
