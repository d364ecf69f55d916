// Mover: moves blocks within the pool, to make free bytes contiguous or to place storages well.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "csrc/engine/base/reclaimer.h"
#include "csrc/engine/state/context.h"
#include "csrc/engine/state/pages.h"
#include "csrc/engine/state/values.h"
#include "csrc/pool/compactor.h"

namespace recoup::detail {

class Mover final : public Reclaimer {
 public:
  // All arguments must outlive this object.
  Mover(Context& context, Values& values, Pages& pages);

  // Whether the owner's block may move.
  [[nodiscard]] bool movable(ValueId owner) const {
    return owner.valid() && context_.lineage[owner].movable();
  }
  // Moves blocks until `size` contiguous bytes are free, at any price. False: that is impossible.
  bool bring_together(Bytes size);
  // Moves all movable blocks as far down as possible.
  void slide();
  // Copies a storage to the block `to`, which has no owner, and makes it the storage's block.
  // Returns the old block, which has no owner then. Returns an invalid one and does nothing if the
  // storage refuses.
  BlockId relocate(StorageId id, BlockId to);
  // Moves a non-recomputable value that is written repeatedly to the low end, once per storage.
  void place_low(StorageId id);
  // Moves blocks to these places, as far as that is possible. Places do not overlap. Returns
  // whether more of it is possible when the copies under way have ended.
  bool arrange(std::span<const Move> moves);
  // Moves the blocks at a planned place to other places, and allocates `size` bytes there. nullopt:
  // bytes are short, or a block must not move, has no other place or exceeds a share of the budget.
  [[nodiscard]] std::optional<BlockId> clear_and_allocate(const PlannedPlace& place, Bytes size);
  // TestAids::shake: moves every movable block to another place, if there is room.
  void move_everything();

  // ---- Reclaimer ----
  std::optional<Offer> offer(const RoomRequest& request, Nanoseconds lost,
                             std::optional<Nanoseconds> limit) override;
  void take(const Offer& offer) override;

 private:
  [[nodiscard]] std::optional<Compaction> plan(Bytes size, Bytes limit);
  bool do_moves(const Compaction& plan);
  bool move_all(std::span<const Move> moves);
  [[nodiscard]] std::optional<PoolOffset> another_place(BlockId id, Zone zone);
  // Where a block will be.
  [[nodiscard]] PoolRange range_of(const Move& move) const {
    return {.begin = move.to, .end = move.to + pool_.size(move.block)};
  }
  [[nodiscard]] std::vector<BlockId> in_the_way(const PoolRange& range, BlockId except) const;
  [[nodiscard]] bool can_clear(const PoolRange& range) const;
  enum class Cleared { kYes, kNo, kRefused };
  Cleared clear(const PoolRange& range, BlockId except);
  [[nodiscard]] std::optional<PoolOffset> free_outside(Bytes size, const PoolRange& range) const;
  void poison_old(PoolOffset from, PoolOffset to, Bytes size);

  Context& context_;
  Pool& pool_;
  Values& values_;
  Pages& pages_;
  Compactor compactor_;
  bool moved_low_ = false;  // direction of the last move_everything
};

}  // namespace recoup::detail
