#include "csrc/engine/program/read_ahead.h"

#include <utility>

namespace recoup::detail {
namespace {

constexpr std::int64_t kReadShare = 8;    // at most 1/8 of the budget is in reads under way
constexpr std::uint32_t kMostOps = 1024;  // limit of ops to look ahead
constexpr std::uint32_t kRest = 8;        // a look that found nothing lasts for 1/8 of its ops

}  // namespace

ReadAhead::ReadAhead(Context& context, const Parts& parts)
    : context_(context),
      lineage_(context.lineage),
      values_(parts.values),
      pages_(parts.pages),
      enough_(parts.enough),
      evictor_(parts.evictor),
      mover_(parts.mover),
      spiller_(parts.spiller),
      copies_(parts.copies) {}

// The values that the next ops use, spilled or not, may take half the budget: reading more would
// push out values that are used earlier.
void ReadAhead::read_next() {
  if (rest_ > 0 && spills() == spills_at_look_) {
    --rest_;
    return;
  }
  const Bytes budget = context_.budget;
  Bytes soon{0};
  bool all_resident = true;
  std::uint32_t n = 1;
  ++look_;
  for (; n <= kMostOps && soon.count() <= budget.count() / 2; ++n) {
    storages_.clear();
    if (!context_.forecast->uses_ahead(n, storages_)) {
      break;
    }
    for (const StorageId storage : storages_) {
      const ValueId id = values_.current(storage);
      if (!add_soon(id)) {
        continue;
      }
      const Value& value = lineage_[id];
      soon += value.size;
      if (!value.spilled() || value.copying) {
        continue;
      }
      all_resident = false;
      const Bytes on_its_way = context_.charges.ahead;
      const bool enough = (on_its_way + value.size).count() > budget.count() / kReadShare;
      if ((enough && on_its_way > Bytes(0)) || !read(id)) {
        return;
      }
    }
  }
  if (all_resident) {
    rest_ = n / kRest;
    spills_at_look_ = spills();
  }
}

bool ReadAhead::add_soon(ValueId id) {
  if (used_soon(id)) {
    return false;
  }
  seen_[id] = look_;
  return true;
}

bool ReadAhead::read(ValueId id) {
  const Bytes size = lineage_[id].size;
  if (!make_room(size)) {
    return false;
  }
  const std::optional<BlockId> found = context_.pool.allocate(size, context_.placer.zone(size));
  if (found) {
    read_into(*found, id);
    if (context_.victim_plan != nullptr) {
      context_.victim_plan->on_fetch_ahead(id);
    }
  }
  return found.has_value();
}

void ReadAhead::read_into(BlockId block, ValueId id) {
  NewBlock taken(context_.pool, block);
  pages_.touch(context_.pool.offset(block), lineage_[id].size);
  context_.count_peak();
  copies_.begin_read(id, std::move(taken));
}

// A fetch whose place is not free yet is tried again before the next kernel.
void ReadAhead::read_planned(VictimPlan& plan) {
  while (const std::optional<PlannedFetch> fetch = plan.begin_fetch()) {
    evictor_.evict_before_block(plan);
    if (!lineage_.contains(fetch->value) || !lineage_[fetch->value].spilled()) {
      continue;
    }
    const Bytes size = lineage_[fetch->value].size;
    const std::int64_t moves = context_.stats.moves;
    std::optional<BlockId> block = context_.allocate_at(fetch->place, size);
    if (!block) {
      block = mover_.clear_and_allocate(fetch->place, size);
    }
    if (block) {
      read_into(*block, fetch->value);
    }
    plan.end_fetch(block.has_value(), context_.stats.moves > moves);
    if (!block) {
      return;
    }
  }
}

// False: a victim is used earlier than the value to read, or must be written first.
bool ReadAhead::make_room(Bytes size) {
  for (;;) {
    const Bytes missing = context_.shortfall(size);
    if (missing <= Bytes(0)) {
      return true;
    }
    if (enough_.roomy()) {
      return false;
    }
    const Evictions victims = evictor_.would_evict({.size = size, .shortfall = missing});
    if (victims.empty()) {
      return false;
    }
    for (const Eviction& each : victims) {
      if (used_soon(each.victim)) {
        return false;
      }
      if (each.spills && !lineage_[each.victim].clean()) {
        if (context_.tier.open() && !copies_.writing()) {
          (void)spiller_.begin_write(each.victim);
        }
        return false;
      }
    }
    evictor_.evict_all(victims);
  }
}

}  // namespace recoup::detail
