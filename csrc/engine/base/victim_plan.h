// VictimPlan: a plan of evictions, and of addresses, that takes precedence over the policy.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "csrc/pool/compaction.h"
#include "recoup/stats.h"
#include "recoup/trace.h"
#include "recoup/types.h"

namespace recoup::detail {

// Note [Planned addresses]
// A step that repeats allocates the same blocks each time, replays included. So its plan can have
// an offset for each of them, under which no block has to move, and the evictions that precede the
// allocation. An allocation that the plan does not foresee, or whose range is not free, is made as
// without a plan, and the plan goes on with the next one.
//
// A small block that replaces its counterpart from the previous run before that one is freed has
// two offsets, which they take in turn.
struct PlannedPlace {
  PoolOffset at;
  PoolOffset other;  // if that range is not free; equal to `at`: there is no other
  friend bool operator==(const PlannedPlace&, const PlannedPlace&) = default;
};

// All methods are called under the engine's lock.
class VictimPlan {
 public:
  virtual ~VictimPlan() = default;

  // The next planned victim: a candidate, the same one until it ceases to be one. Invalid: the
  // policy decides.
  [[nodiscard]] virtual ValueId next() const = 0;
  // Called when enough bytes are free, but fragmented. The price limit up to which blocks are to be
  // moved now, before next() is evicted; nullopt: the plan has no move here.
  [[nodiscard]] virtual std::optional<Nanoseconds> moves_next() const = 0;
  // Blocks were moved for an allocation, by plan or because that was cheapest.
  virtual void on_room_by_moves() = 0;

  // ---- addresses: Note [Planned addresses] ----
  // Whether addresses of the running step's blocks are planned. No other measure then chooses where
  // blocks lie.
  [[nodiscard]] virtual bool places() const { return false; }
  // A block is about to be allocated. Its planned place; nullopt: it has none.
  [[nodiscard]] virtual std::optional<PlannedPlace> begin_block(Bytes /*size*/) {
    return std::nullopt;
  }
  // A candidate to evict before that block is allocated; invalid: none is left.
  [[nodiscard]] virtual ValueId victim_before_block() { return {}; }
  // Moves that bring blocks from before the step to their planned offsets. Empty: none is due.
  [[nodiscard]] virtual std::vector<Move> take_arrangement() { return {}; }
  // Whether the block was allocated at its planned offset.
  virtual void end_block(bool /*as_planned*/) {}

  // The simulated trace says that this plan is in force from now on.
  virtual void on_recorded(const TracePlan& /*plan*/, const TracePlanLists& /*lists*/) {}
  // Whether planning in the background slows down what is measured now.
  [[nodiscard]] virtual bool disturbs() const { return false; }
  // Adds the plan's counters.
  virtual void add_to(Stats& /*stats*/) const {}
};

}  // namespace recoup::detail
