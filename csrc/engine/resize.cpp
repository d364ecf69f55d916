// A budget that changes while a program runs.
#include <stdexcept>

#include "csrc/engine/engine.h"

namespace recoup::detail {

// Of the pool, in whole units of alignment.
Bytes Engine::capacity_in(Bytes budget) const {
  return Bytes((budget - options_.outside).count() / options_.alignment.count() *
               options_.alignment.count());
}

void Engine::grow(Bytes budget) {
  if (budget <= options_.budget) {
    throw std::invalid_argument(
        str_cat("a budget can only grow: it is ", recoup::to_string(options_.budget)));
  }
  options_.budget = budget;
  placer_.set_budget(budget);
  if (options_.addresses > Bytes(0)) {
    return;
  }
  pool_.grow(capacity_in(budget));
}

void Engine::shrink(Bytes budget) {
  if (budget <= options_.outside || budget >= options_.budget) {
    throw std::invalid_argument(str_cat("a smaller budget must be more than ",
                                        recoup::to_string(options_.outside), " and less than ",
                                        recoup::to_string(options_.budget)));
  }
  const Bytes less = options_.budget - budget;
  if (shortfall(less) > Bytes(0)) {
    device_.sweep_external();
  }
  const bool possible = unevictable() <= budget;  // else nothing is given up for it
  while (shortfall(less) > Bytes(0)) {
    if (!possible || (!evict_one({.size = Bytes(0), .shortfall = shortfall(less)}) &&
                      !drop_dead_leaf(shortfall(less)))) {
      throw_out_of_budget(Bytes(0), str_cat("a budget of ", recoup::to_string(budget),
                                            " does not hold what cannot be evicted"));
    }
  }
  if (options_.addresses <= Bytes(0)) {
    const Bytes capacity = capacity_in(budget);
    if (!clear_addresses(capacity)) {
      throw_out_of_budget(Bytes(0), str_cat("in a budget of ", recoup::to_string(budget),
                                            " what may not move would lie outside"));
    }
    pool_.shrink(capacity);
  }
  options_.budget = budget;
  placer_.set_budget(budget);
}

// What stays whatever else goes; dead leaves may go.
Bytes Engine::unevictable() const {
  Bytes stays = charges_.external + charges_.kernel_held;
  lineage_.for_each_value([&](ValueId, const Value& value) {
    const bool dead_leaf = value.leaf() && !value.held();
    stays += value.block.valid() && !value.evictable() && !dead_leaf ? value.size : Bytes(0);
  });
  return stays;
}

// Empties all of the pool from `capacity` on; false when something there stays.
bool Engine::clear_addresses(Bytes capacity) {
  for (;;) {
    while (!do_moves(pool_.plan_slide([this](std::uint32_t owner) { return movable(owner); }))) {
    }
    BlockId last;
    for (BlockId id = pool_.first(); id.valid(); id = pool_.next(id)) {
      if (const BlockView block = pool_.view(id);
          !block.free && block.offset + block.size > capacity) {
        last = id;
      }
    }
    if (!last.valid()) {
      return true;
    }
    const std::uint32_t owner = pool_.owner(last);
    if (owner == 0 || !movable(owner)) {
      return false;
    }
    if (const ValueId id(owner - 1); lineage_[id].evictable()) {
      evict_value(id);
    } else if (!evict_one({.size = Bytes(0), .shortfall = Bytes(1)}) && !drop_dead_leaf(Bytes(1))) {
      return false;
    }
  }
}

}  // namespace recoup::detail
