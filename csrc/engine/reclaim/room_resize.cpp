// How the budget changes: what a smaller one needs, and how the pool's addresses beyond it are
// cleared.
#include <algorithm>
#include <stdexcept>

#include "csrc/base/check.h"
#include "csrc/base/strings.h"
#include "csrc/engine/reclaim/room.h"
#include "csrc/engine/tier/async_copies.h"

namespace recoup::detail {

void Room::grow(Bytes budget) {
  RECOUP_CHECK(budget > context_.budget);
  context_.budget = budget;
  context_.placer.set_budget(budget);
  context_.end_pool();
}

void Room::shrink(Bytes budget, Announce announce) {
  RECOUP_CHECK(budget < context_.budget);
  if (budget <= context_.outside) {
    throw std::invalid_argument(
        str_cat("a budget must be above ", recoup::to_string(context_.outside)));
  }
  const bool has_addresses = context_.options.addresses <= Bytes(0);
  const Bytes capacity = has_addresses ? context_.capacity_in(budget) : Bytes(0);
  context_.copies->wait_for_all();
  const Bytes less = context_.budget - budget;
  const auto missing = [&] { return context_.shortfall(less); };
  if (missing() > Bytes(0)) {
    context_.device.sweep_external();
    importer_.bring_in();
  }
  // Nothing is evicted for an impossible budget.
  const bool possible = unevictable(Sources::kNone) <= budget;
  if (possible && has_addresses && capacity <= Bytes(0)) {
    throw std::invalid_argument("a budget must have room for a block of the pool");
  }
  const bool blocked = has_addresses && is_blocked_beyond(capacity);
  bool fits = missing() <= Bytes(0) || possible;
  while (fits && !blocked && missing() > Bytes(0)) {
    fits = free_some(missing());
  }
  if (!fits) {
    reporter_.fail_to_shrink(budget, least_possible(),
                             str_cat("a budget of ", short_text(budget),
                                     " is less than the memory that cannot be evicted"),
                             announce);
  }
  if (has_addresses && (blocked || !clear_addresses(capacity))) {
    const BlockId last = blocked ? BlockId() : block_beyond(PoolOffset(0));
    const Bytes end = last.valid() ? pool_.offset(last) + pool_.size(last) : Bytes(0);
    reporter_.fail_to_shrink(
        budget, std::max(least_possible(), context_.outside + end),
        str_cat("tensors that cannot be moved lie beyond a budget of ", short_text(budget)),
        announce);
  }
  set_smaller(budget);
}

// All blocks lie within the smaller pool.
void Room::set_smaller(Bytes budget) {
  const PoolOffset before = context_.addresses_end();
  context_.budget = budget;
  context_.placer.set_budget(budget);
  if (context_.options.addresses <= Bytes(0)) {
    context_.end_pool();
    const PoolOffset end = context_.addresses_end();
    RECOUP_CHECK(pool_.capacity() <= end, "a smaller budget has no room for the pool");
    pages_.shrunk(end, before);
  }
}

bool Room::shrink_by_free(Bytes budget) {
  RECOUP_CHECK(budget < context_.budget);
  if (budget <= context_.outside || context_.shortfall(context_.budget - budget) > Bytes(0)) {
    return false;
  }
  if (context_.options.addresses <= Bytes(0)) {
    const Bytes capacity = context_.capacity_in(budget);
    if (capacity <= Bytes(0) || block_beyond(capacity).valid()) {
      return false;
    }
  }
  set_smaller(budget);
  return true;
}

// The bytes that cannot be freed. Dead sources can be, unless values that are needed are evicted.
Bytes Room::unevictable(Sources counted) const {
  Bytes stays = context_.charges.external + context_.charges.kernel_held;
  context_.lineage.for_each_value([&](ValueId id, const Value& value) {
    if (!value.block.valid() || value.evictable()) {
      return;
    }
    const bool dead_source = !value.recomputable() && !value.held();
    const bool stays_here =
        dead_source ? counted == Sources::kNeeded && is_needed_source(id) : true;
    stays += stays_here ? value.size : Bytes(0);
  });
  return stays;
}

// Whether a dead source has to stay once everything that can be evicted is evicted.
bool Room::is_needed_source(ValueId source) const {
  const Dependents found =
      non_recomputables_.dependents(source, NonRecomputables::Reach::kPastDead);
  return !found.needed.empty() ||
         std::any_of(found.resident.begin(), found.resident.end(), [&](ValueId id) {
           return context_.lineage[id].held() && context_.lineage[id].evictable();
         });
}

// A budget to which the budget can change. Blocks that cannot move keep their addresses. Those that
// can move, but not be evicted, lie below the last of them if they fit there whatever is lost in
// the gaps, and above it otherwise. In a pool of segments blocks do not move to other segments.
Bytes Room::least_possible() const {
  const Bytes stays = unevictable(Sources::kNeeded);
  if (context_.options.addresses > Bytes(0)) {
    return stays;
  }
  Bytes end{0};      // of the last block that cannot move
  Bytes movable{0};  // the sum of the others that stay
  Bytes largest{0};
  Bytes immovable{0};
  std::int64_t gaps = 0;
  for (BlockId id = pool_.first(); id.valid(); id = pool_.next(id)) {
    const BlockView block = pool_.view(id);
    if (block.free) {
      continue;
    }
    const bool is_evictable = block.owner.valid() && context_.lineage[block.owner].evictable();
    const bool may_move = mover_.movable(block.owner);
    if (!may_move || (context_.options.block_size > Bytes(0) && !is_evictable)) {
      end = std::max(end, block.offset + block.size);
      immovable += block.size;
      ++gaps;
    } else if (!is_evictable) {
      movable += block.size;
      largest = std::max(largest, block.size);
    }
  }
  const bool fits_below = movable + Bytes(gaps * largest.count()) <= end - immovable;
  return std::max(stays, context_.outside + end + (fits_below ? Bytes(0) : movable));
}

// The last block that ends beyond `end`; invalid: there is none.
BlockId Room::block_beyond(PoolOffset end) const {
  BlockId last;
  for (BlockId id = pool_.first(); id.valid(); id = pool_.next(id)) {
    if (const BlockView block = pool_.view(id); !block.free && block.offset + block.size > end) {
      last = id;
    }
  }
  return last;
}

// Whether a block that cannot be moved ends beyond `end`.
bool Room::is_blocked_beyond(PoolOffset end) const {
  for (BlockId id = pool_.first(); id.valid(); id = pool_.next(id)) {
    const BlockView block = pool_.view(id);
    if (!block.free && block.offset + block.size > end && !mover_.movable(block.owner)) {
      return true;
    }
  }
  return false;
}

// Empties the pool from `capacity` on. False: a block there can be neither moved nor evicted.
bool Room::clear_addresses(Bytes capacity) {
  for (;;) {
    mover_.slide();
    const BlockId last = block_beyond(capacity);
    if (!last.valid()) {
      return true;
    }
    const ValueId owner = pool_.owner(last);
    if (!mover_.movable(owner)) {
      return false;
    }
    if (context_.lineage[owner].evictable()) {
      evictor_.evict(owner);
    } else if (!free_some(Bytes(1))) {
      return false;
    }
  }
}

}  // namespace recoup::detail
