// Room: blocks for whoever asks, and what is given up for them.
#pragma once

#include <array>
#include <optional>
#include <span>

#include "csrc/engine/reclaim/disturber.h"
#include "csrc/engine/reclaim/evictor.h"
#include "csrc/engine/reclaim/importer.h"
#include "csrc/engine/reclaim/mover.h"
#include "csrc/engine/state/context.h"
#include "csrc/engine/state/enough.h"
#include "csrc/engine/state/non_recomputables.h"
#include "csrc/engine/state/out_of_budget.h"
#include "csrc/engine/state/pages.h"

namespace recoup::detail {

// A replay that is under way: its ops that wait hold what they need, but would do without.
class WaitingReplay {
 public:
  virtual ~WaitingReplay() = default;
  // The value to give up when no candidate is left; invalid when there is none.
  [[nodiscard]] virtual ValueId soft_victim() const = 0;
};

// Note [Making room]
//   0. with a spill tier: what was made outside comes into the pool, and is a candidate there
//   1. useless dead values (they are dropped as soon as they are useless, so none is left here)
//   2. candidates, as the policy plans
//   3. softly pinned inputs of waiting replays, the outermost frame's first
//   4. external tensors that only the engine still holds, dead leaves that nothing evicted hangs on
//   5. the report
// When the bytes are there but not in one piece, each Reclaimer names its price in nanoseconds, and
// the cheapest is taken; where the running step has a list of evictions, what that names comes
// first.
class Room {
 public:
  struct Parts {
    Values& values;
    NonRecomputables& non_recomputables;
    Pages& pages;
    Evictor& evictor;
    Mover& mover;
    Importer& importer;
    Enough& enough;
    const OutOfBudgetReporter& reporter;
    Disturber& disturber;
  };
  // All must outlive it.
  Room(Context& context, const Parts& parts);

  // A block that nobody owns, for a kernel. `at`: where nothing must be. Throws OutOfBudget.
  BlockId take_block(Bytes nbytes, std::optional<PoolOffset> at = std::nullopt);
  // Bytes outside the pool: no address matters. Throws OutOfBudget.
  void charge_external(Bytes size);
  // Evicts until `need` bytes are free, if that is possible, and slides everything that may move to
  // one side. `pinned` are values that the op holds with acquire; they stay resident and may move.
  // False: less is free, and there is nothing left to evict.
  [[nodiscard]] bool defragment(std::span<const ValueId> pinned, Bytes need);

  // Throw std::invalid_argument; shrink throws OutOfBudget too, and then the budget is what it was.
  void grow(Bytes budget);
  void shrink(Bytes budget);

  // Null: none. It must take itself away before it ends.
  void set_replay(const WaitingReplay* replay);

 private:
  std::optional<BlockId> find_block(Bytes size);  // timed now and then
  void make_room(Bytes size);
  bool make_one_piece(Bytes size, Nanoseconds& lost);
  bool reclaim(const RoomRequest& request, Nanoseconds& lost);
  bool reclaim_as_planned(const RoomRequest& request, Nanoseconds& lost);
  void take(Reclaimer& way, Nanoseconds& lost);
  bool free_some(Bytes missing);
  bool evict_soft_pinned();
  void count_misfit();
  [[nodiscard]] Bytes unevictable() const;
  bool clear_addresses(Bytes capacity);

  Context& context_;
  Pool& pool_;
  NonRecomputables& non_recomputables_;
  Pages& pages_;
  Evictor& evictor_;
  Mover& mover_;
  Importer& importer_;
  Enough& enough_;
  const OutOfBudgetReporter& reporter_;
  Disturber& disturber_;
  const std::array<Reclaimer*, 2> ways_;  // a new one is a row here
  const WaitingReplay* replay_ = nullptr;
};

}  // namespace recoup::detail
