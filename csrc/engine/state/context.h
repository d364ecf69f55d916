// Context: state shared by all parts of one engine. The engine owns it; its parts hold references.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string_view>

#include "csrc/engine/base/cost_memory.h"
#include "csrc/engine/base/device.h"
#include "csrc/engine/base/maker_table.h"
#include "csrc/engine/base/move_price.h"
#include "csrc/engine/base/observer.h"
#include "csrc/engine/base/placement.h"
#include "csrc/engine/base/schedule_hooks.h"
#include "csrc/engine/base/tier.h"
#include "csrc/engine/base/use_forecast.h"
#include "csrc/engine/base/victim_plan.h"
#include "csrc/engine/state/copy_wait.h"
#include "csrc/engine/state/more_memory.h"
#include "csrc/engine/state/outside_segments.h"
#include "csrc/lineage/lineage.h"
#include "csrc/pool/pool.h"
#include "recoup/options.h"
#include "recoup/stats.h"

namespace recoup::detail {

class AsyncCopies;

// What is charged to the budget, and related counts.
struct Charges {
  Bytes external{0};     // bytes outside the pool
  Bytes kernel_held{0};  // in blocks of the pool that no value owns
  int kernel_blocks = 0;
  Bytes ahead{0};  // in blocks of the pool that are destinations of async reads
  int ahead_blocks = 0;
  Bytes spilled{0};       // values whose bytes are only in the spill tier
  Bytes plain{0};         // live storages of the pool, evicted or not
  Bytes dead_sources{0};  // dead non-recomputable values in the pool
  Bytes dead_frozen{0};   // those of dead_sources that a freeze made non-recomputable
  int immovable_blocks = 0;
  std::ptrdiff_t device_metadata = 0;

  // A kernel starts or stops owning a block of the pool.
  void add_kernel_block(Bytes size) {
    kernel_held += size;
    ++kernel_blocks;
  }
  void remove_kernel_block(Bytes size) {
    kernel_held -= size;
    --kernel_blocks;
  }
};

struct Context {
  // Throws std::invalid_argument when the options contradict each other. The device must outlive
  // this object.
  Context(const Options& all_options, Device& its_device);

  [[nodiscard]] Bytes charged() const { return pool.used() + charges.external; }
  // The bytes to free before `size` more fit; negative: the bytes that are left after them.
  [[nodiscard]] Bytes shortfall(Bytes size) const { return charged() + size - budget; }
  void count_peak() {
    recent_peak = std::max(recent_peak, charged());
    if (charged().count() > stats.peak_bytes) {
      stats.peak_bytes = charged().count();
      if (observer != nullptr) {
        observer->on_peak();
      }
    }
  }
  // Adds a measurement and returns the current cost of the kind. Learns nothing while a plan is
  // made in the background, because that disturbs measurements.
  Nanoseconds learn(CostKey kind, Nanoseconds measured) {
    if (victim_plan != nullptr && victim_plan->disturbs()) {
      return costs.belief(kind).value_or(measured);
    }
    return costs.learn(kind, measured);
  }
  // The size of the pool within a budget: what `outside` leaves, in whole units of alignment.
  [[nodiscard]] Bytes capacity_in(Bytes of_budget) const;
  // All addresses of the pool, as an offset of their end.
  [[nodiscard]] PoolOffset addresses_end() const;
  // Counts bytes outside the pool, and moves its end: Note [End of the pool].
  void charge_outside(Bytes size) {
    charges.external += size;
    end_pool();
  }
  // Where the pool ends, unless blocks beyond are taken. A budget that grows by itself is shared:
  // its pool keeps all addresses.
  [[nodiscard]] PoolOffset pool_end() const {
    if (more != nullptr) {
      return addresses_end();
    }
    return std::max(Bytes(0), addresses_end() - (charges.external - outside));
  }
  void end_pool() { pool.set_end(pool_end()); }
  // A block at its planned place. nullopt: too few bytes are free, or something is in the way.
  [[nodiscard]] std::optional<BlockId> allocate_at(const PlannedPlace& place, Bytes size) {
    if (shortfall(size) > Bytes(0)) {
      return std::nullopt;
    }
    const std::optional<BlockId> block = pool.allocate_at(place.at, size);
    return block || place.other == place.at ? block : pool.allocate_at(place.other, size);
  }
  // Adds bytes of `outside`, which are no longer in use outside, to the pool.
  void take_from_outside(Bytes size);
  // The price of all moves so far.
  [[nodiscard]] Nanoseconds move_cost() const {
    return move_price.of(static_cast<std::size_t>(stats.moves), Bytes(stats.moved_bytes));
  }
  // The observer of the program's actions; null while a replay runs.
  [[nodiscard]] Observer* program_observer() const { return replaying ? nullptr : observer; }

  const Options options;
  Bytes budget;   // in force; at first Options::budget
  Bytes outside;  // in use outside the pool since before the scope; at first Options::outside
  TestAids aids;  // at first Options::aids
  Device& device;
  Pool pool;
  Lineage lineage;
  const MovePrice move_price;
  Tier tier;
  Charges charges;
  OutsideSegments segments;
  Stats stats;
  CostMemory costs;
  Placer placer;
  Bytes enough{0};       // a budget that needs no eviction, see Enough
  Bytes recent_peak{0};  // peak of the charged bytes since Engine::take_recent_peak
  Tick now = 0;
  // Time spent making room so far. Measurements of ops subtract its growth.
  Nanoseconds room_time{0};
  std::string_view running_op;  // for messages; empty: no op runs
  bool replaying = false;
  bool keep_bytes = false;            // freed blocks keep their bytes: Note [Results in place]
  bool asked_to_evict = false;        // the user, a schedule or a test has requested evictions
  Observer* observer = nullptr;       // null: no observer
  ScheduleHooks* schedule = nullptr;  // null: no schedule
  VictimPlan* victim_plan = nullptr;  // null: the policy alone decides
  UseForecast* forecast = nullptr;    // null: the next uses are not known
  CopyWait* copy_wait = nullptr;      // waits for copies of the engine
  MakerTable* makers = nullptr;       // null: attribution is off
  AsyncCopies* copies = nullptr;      // the copies of the engine
  MoreMemory* more = nullptr;         // null: the budget does not grow by itself
  int alternatives = 0;               // see WithoutWaiting
};

// While it exists, no allocation waits for MoreMemory, because there is an alternative to it.
class WithoutWaiting {
 public:
  explicit WithoutWaiting(Context& context, bool wanted = true)
      : context_(context), count_(wanted ? 1 : 0) {
    context_.alternatives += count_;
  }
  ~WithoutWaiting() { context_.alternatives -= count_; }
  WithoutWaiting(const WithoutWaiting&) = delete;
  WithoutWaiting& operator=(const WithoutWaiting&) = delete;

 private:
  Context& context_;
  int count_;
};

// The size of the block that Engine::reserve_bounce allocates: 1/256 of the pool, at most 32 MiB.
// `in_pool`: the budget without the memory that was in use outside before.
[[nodiscard]] RECOUP_API Bytes bounce_size(const Options& options, Bytes in_pool);

}  // namespace recoup::detail
