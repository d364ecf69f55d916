// Context: what all parts of one engine share. The engine owns it; its parts hold references.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

#include "csrc/engine/base/copy_wait.h"
#include "csrc/engine/base/cost_memory.h"
#include "csrc/engine/base/device.h"
#include "csrc/engine/base/maker_table.h"
#include "csrc/engine/base/move_price.h"
#include "csrc/engine/base/observer.h"
#include "csrc/engine/base/placement.h"
#include "csrc/engine/base/planned_victims.h"
#include "csrc/engine/base/schedule_hooks.h"
#include "csrc/engine/base/tier.h"
#include "csrc/lineage/lineage.h"
#include "csrc/pool/pool.h"
#include "recoup/options.h"
#include "recoup/stats.h"

namespace recoup::detail {

class AsyncCopies;

// What takes the budget, and metadata.
struct Charges {
  Bytes external{0};     // outside the pool
  Bytes kernel_held{0};  // in blocks of the pool that no value owns
  int kernel_blocks = 0;
  Bytes ahead{0};  // in blocks of the pool into which spilled values are being read
  int ahead_blocks = 0;
  Bytes spilled{0};       // of values that have bytes in the spill tier alone
  Bytes plain{0};         // of the live storages in the pool, evicted or not
  Bytes dead_sources{0};  // in the pool
  Bytes dead_frozen{0};   // those of them that a freeze made
  int immovable_blocks = 0;
  std::ptrdiff_t device_metadata = 0;

  // A block of the pool is a kernel's from now on; it no longer is.
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
  // Throws std::invalid_argument when the options do not go together. The device must outlive it.
  Context(const Options& all_options, Device& its_device);

  [[nodiscard]] Bytes charged() const { return pool.used() + charges.external; }
  // What is missing for `size` bytes more; below 0: what is left then.
  [[nodiscard]] Bytes shortfall(Bytes size) const { return charged() + size - options.budget; }
  void count_peak() {
    if (charged().count() > stats.peak_bytes) {
      stats.peak_bytes = charged().count();
      if (observer != nullptr) {
        observer->on_peak();
      }
    }
  }
  // What a kind of op costs, now that one took so long. While a plan is being made beside the
  // program nothing is learned, for that disturbs what is measured.
  Nanoseconds learn(CostKey kind, Nanoseconds measured) {
    if (planned != nullptr && planned->disturbs()) {
      return costs.belief(kind).value_or(measured);
    }
    return costs.learn(kind, measured);
  }
  // What all moves so far cost, by their price.
  [[nodiscard]] Nanoseconds move_cost() const {
    return move_price.of(static_cast<std::size_t>(stats.moves), Bytes(stats.moved_bytes));
  }
  // Who looks on at what the program does; null while a replay runs.
  [[nodiscard]] Observer* program_observer() const { return replaying ? nullptr : observer; }

  Options options;
  Device& device;
  Pool pool;
  Lineage lineage;
  const MovePrice move_price;
  Tier tier;
  Charges charges;
  Stats stats;
  CostMemory costs;
  Placer placer;
  Bytes enough{0};  // a budget in which nothing would have been evicted, see Enough
  Tick now = 0;
  // Spent making room so far; who measures an op subtracts its growth.
  Nanoseconds room_time{0};
  std::string_view running_op;  // for messages; empty: none
  bool replaying = false;
  bool told_to_evict = false;         // at any time, by the user, a schedule or a test
  Observer* observer = nullptr;       // null: nobody looks on
  ScheduleHooks* schedule = nullptr;  // null: there is no schedule
  PlannedVictims* planned = nullptr;  // null: the policy alone decides
  CopyWait* copy_wait = nullptr;      // of its copies
  MakerTable* makers = nullptr;       // null: nobody asks
  AsyncCopies* copies = nullptr;      // the engine's
};

// The block that Engine::reserve_bounce allocates: 1/256 of the pool, at most 32 MiB.
[[nodiscard]] Bytes bounce_size(const Options& options);
// Of a pool in a budget, in whole units of alignment.
[[nodiscard]] Bytes capacity_in(const Options& options, Bytes budget);

}  // namespace recoup::detail
