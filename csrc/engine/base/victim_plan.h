// VictimPlan: a plan of evictions, and of addresses, that takes precedence over the policy.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "csrc/pool/compaction.h"
#include "recoup/policy.h"
#include "recoup/stats.h"
#include "recoup/trace.h"
#include "recoup/types.h"

namespace recoup::detail {

// Note [Planned addresses]
// A step that repeats allocates the same blocks each time, replays included. So its plan can have
// an offset for each of them, under which no block has to move, and the evictions that precede the
// allocation. If the range is not free, blocks in it are moved. An allocation that the plan does
// not foresee, or whose range cannot be freed so, is made as without a plan, and the plan goes on
// with the next one.
//
// A small block that replaces its counterpart from the previous run before that one is freed has
// two offsets, which they take in turn.
struct PlannedPlace {
  PoolOffset at;
  PoolOffset other;  // if that range is not free; equal to `at`: there is no other
  friend bool operator==(const PlannedPlace&, const PlannedPlace&) = default;
};

// A candidate to evict, and how it is to be restored.
struct PlannedVictim {
  ValueId value;  // invalid: none
  GetBack by = GetBack::kCheapest;
};

// A spilled value to fetch, and where.
struct PlannedFetch {
  ValueId value;
  PlannedPlace place;
};

// What brings the blocks from before a step to where its plan expects them.
struct Arrangement {
  std::vector<PlannedVictim> victims;  // they are not resident when the planned step begins
  std::vector<Move> moves;
  [[nodiscard]] bool empty() const { return victims.empty() && moves.empty(); }
};

// All methods are called under the engine's lock.
class VictimPlan {
 public:
  virtual ~VictimPlan() = default;

  // The next planned victim, the same one until it ceases to be a candidate. None: the policy
  // decides.
  [[nodiscard]] virtual PlannedVictim next() const = 0;
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
  // The next victim to evict before that block, or that of a fetch, is allocated.
  [[nodiscard]] virtual PlannedVictim victim_before_block() { return {}; }
  // What is to be done before the first blocks are allocated. Empty: nothing is due.
  [[nodiscard]] virtual Arrangement take_arrangement() { return {}; }
  // Whether the block was allocated at its planned offset, and whether blocks were moved for it.
  virtual void end_block(bool /*as_planned*/, bool /*moved*/) {}

  // ---- copies ----
  // Whether all copies of the running step are planned. No other measure then begins any.
  [[nodiscard]] virtual bool copies() const { return false; }
  // A value to write to the spill tier now; invalid: none. Each one is returned once.
  [[nodiscard]] virtual ValueId next_to_write() { return {}; }
  // The next fetch that is due, the same one until it has begun; nullopt: none is.
  [[nodiscard]] virtual std::optional<PlannedFetch> begin_fetch() { return std::nullopt; }
  // Whether that fetch has begun, and whether blocks were moved for it.
  virtual void end_fetch(bool /*begun*/, bool /*moved*/) {}
  // A fetch that is not planned has begun.
  virtual void on_fetch_ahead(ValueId /*value*/) {}

  // The simulated trace says that this plan is in force from now on.
  virtual void on_recorded(const TracePlan& /*plan*/, const TracePlanLists& /*lists*/) {}
  // Whether planning in the background slows down what is measured now.
  [[nodiscard]] virtual bool disturbs() const { return false; }
  // Adds the plan's counters.
  virtual void add_to(Stats& /*stats*/) const {}
};

}  // namespace recoup::detail
