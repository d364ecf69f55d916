// Room: allocates blocks, and frees or moves memory to make room for them.
#pragma once

#include <array>
#include <optional>
#include <span>

#include "csrc/engine/reclaim/copy_waiter.h"
#include "csrc/engine/reclaim/disturber.h"
#include "csrc/engine/reclaim/evictor.h"
#include "csrc/engine/reclaim/handover.h"
#include "csrc/engine/reclaim/importer.h"
#include "csrc/engine/reclaim/mover.h"
#include "csrc/engine/state/context.h"
#include "csrc/engine/state/enough.h"
#include "csrc/engine/state/non_recomputables.h"
#include "csrc/engine/state/out_of_budget.h"
#include "csrc/engine/state/pages.h"

namespace recoup::detail {

// A running replay. The inputs that its waiting ops hold can be evicted if necessary.
class WaitingReplay {
 public:
  virtual ~WaitingReplay() = default;
  // The value to evict when no candidate is left; invalid: none.
  [[nodiscard]] virtual ValueId soft_victim() const = 0;
};

// Note [Making room]
//   0. memory by which the budget can grow, if there is MoreMemory; with a spill tier: storages
//      made outside are brought into the pool and become candidates
//   1. useless dead values (they are dropped as soon as they are useless, so none is left here)
//   2. candidates, as the policy plans
//   3. softly pinned inputs of waiting replays, the outermost frame's first
//   4. external tensors that only the engine holds; copies under way; dead sources not needed
//   5. memory that MoreMemory waits for
//   6. the error report
// The table in room_measures.cpp has every measure.
// If enough bytes are free but not contiguous, blocks are moved at any price while the budget has
// been enough (Enough::roomy). Otherwise each Reclaimer names its price in nanoseconds, and the
// cheapest is taken. If the running step has a list of evictions, the list takes precedence. Where
// neither moves nor evictions can help, nothing is evicted (Note [Evictions in vain]).
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
    Handover& handover;
  };
  // All arguments must outlive this object.
  Room(Context& context, const Parts& parts);

  // A block without an owner, for a kernel. `at`: its offset, where the pool must be free. Throws
  // OutOfBudget.
  [[nodiscard]] Values::KernelBlock take_block(Bytes nbytes,
                                               std::optional<PoolOffset> at = std::nullopt);
  // Charges bytes outside the pool, where no address matters. Throws OutOfBudget.
  void charge_external(Bytes size);
  // Evicts until `need` bytes are free, if possible, and slides all movable blocks to one side.
  // `pinned` are the values that the op holds with acquire; they stay resident and may move. False:
  // less is free, and nothing is left to evict.
  [[nodiscard]] bool defragment(std::span<const ValueId> pinned, Bytes need);

  // shrink throws std::invalid_argument and OutOfBudget; the budget is unchanged then.
  void grow(Bytes budget);
  void shrink(Bytes budget, Announce announce);
  // By free bytes at the end of the pool. False: less is free, and nothing changes.
  [[nodiscard]] bool shrink_by_free(Bytes budget);

  // Grows the budget by what MoreMemory has, if `missing` is above 0: by as much, by more or by
  // less.
  void take_more(Bytes missing);
  // Waits for at least that many bytes. False: there will not be as many.
  bool wait_for_more(Bytes missing);

  // Null: none. The replay must reset it before it ends.
  void set_replay(const WaitingReplay* replay);

 private:
  // An offer, and the reclaimer that made it.
  struct Step {
    Reclaimer* way;
    Offer offer;
  };

  std::optional<BlockId> take_planned(Bytes size);
  std::optional<BlockId> find_block(Bytes size);  // some calls are timed
  // The room that an allocation lacks.
  struct Need {
    Bytes size;
    Bytes missing{0};     // before `size` more bytes fit; 0 or less: they are free, but in pieces
    Nanoseconds lost{0};  // the price of what has been evicted to make one piece
    bool misfit = false;  // it has been counted that the bytes are free in pieces
    bool swept = false;   // the device has released what it could outside the pool
    std::optional<bool> in_vain{};  // Note [Evictions in vain]; nullopt: not yet known
    [[nodiscard]] bool in_pieces() const { return missing <= Bytes(0); }
  };
  // Frees, moves or gets memory. True: the measures are tried again, from the first one.
  using Measure = bool (Room::*)(Need& need);
  static const Measure kMeasures[];

  void make_room(Bytes size);
  void make_budget_room(Need& need);
  // Whether the room is still lacking. Updates the need.
  [[nodiscard]] bool lacks(Need& need);
  [[nodiscard]] bool is_in_vain(Need& need) const;
  // The measures.
  bool grow_once(Need& need);
  bool join_pieces(Need& need);
  bool drop_while_roomy(Need& need);
  bool use_addresses_in_vain(Need& need);
  bool evict_candidates(Need& need);
  bool evict_held(Need& need);
  bool sweep(Need& need);
  bool end_copies(Need& need);
  bool drop_source(Need& need);
  bool import(Need& need);
  bool use_addresses(Need& need);
  bool await_more(Need& need);
  [[nodiscard]] Nanoseconds make_one_piece(Bytes size, Nanoseconds lost);
  [[nodiscard]] bool can_be_one_piece(Bytes size) const;
  [[nodiscard]] bool use_all_addresses(Bytes size);
  void leave_beyond();
  std::optional<Nanoseconds> reclaim(const RoomRequest& request, Nanoseconds lost);
  [[nodiscard]] std::optional<Step> planned_step(const RoomRequest& request, Nanoseconds lost);
  [[nodiscard]] std::optional<Step> cheapest_step(const RoomRequest& request, Nanoseconds lost);
  bool free_some(Bytes missing);
  bool evict_soft_pinned();
  void count_misfit();
  // Which dead sources count as bytes that stay.
  enum class Sources : std::uint8_t { kNone, kNeeded };
  [[nodiscard]] Bytes unevictable(Sources counted) const;
  [[nodiscard]] bool is_needed_source(ValueId source) const;
  [[nodiscard]] Bytes least_possible() const;
  bool clear_addresses(Bytes capacity);
  [[nodiscard]] bool is_blocked_beyond(PoolOffset end) const;
  [[nodiscard]] BlockId block_beyond(PoolOffset end) const;
  void set_smaller(Bytes budget);
  void grow_by(Bytes more);

  Context& context_;
  Pool& pool_;
  Values& values_;
  NonRecomputables& non_recomputables_;
  Pages& pages_;
  Evictor& evictor_;
  Mover& mover_;
  Importer& importer_;
  Enough& enough_;
  const OutOfBudgetReporter& reporter_;
  Disturber& disturber_;
  Handover& handover_;
  CopyWaiter copy_waiter_;
  const std::array<Reclaimer*, 3> ways_;  // all reclaimers
  const WaitingReplay* replay_ = nullptr;
  Bytes placed_beyond_{0};  // size of blocks placed beyond the end of the pool since the last slide
};

}  // namespace recoup::detail
