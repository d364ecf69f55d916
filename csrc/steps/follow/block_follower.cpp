#include "csrc/steps/follow/block_follower.h"

#include <algorithm>
#include <map>

namespace recoup::detail {
namespace {

// The kind of a block from before the step; nullopt: the storage is not from before it.
std::optional<BlockKind> kind_of(const StepLog& step, Bytes size, StorageId storage) {
  BlockKind kind{.size = size.count()};
  if (!storage.valid()) {
    return kind;
  }
  const std::optional<Made> name = step.name_of(storage);
  if (!name || step.maker_in_step(storage)) {
    return std::nullopt;
  }
  if (name->op == Made::kBefore) {
    kind.storage = std::int64_t{name->slot} + 1;
  } else {
    kind.op = std::int64_t{name->op} - Made::kLastStep + 1;
    kind.slot = name->slot;
  }
  return kind;
}

}  // namespace

std::optional<PlannedPlace> BlockFollower::begin_block(const BlockPlan& plan, const StepLog& step,
                                                       Bytes size) {
  const std::uint32_t ops = step.op_count();
  while (entry_ < plan.entries.size() && plan.entries[entry_].ops < ops) {
    ++entry_;
  }
  for (std::size_t i = entry_; i < plan.entries.size() && plan.entries[i].ops == ops; ++i) {
    if (plan.entries[i].size == size) {
      entry_ = i + 1;
      due_ = std::max<std::size_t>(due_, plan.entries[i].evictions);
      return plan.entries[i].place;
    }
  }
  ++elsewhere_;
  return std::nullopt;
}

PlannedVictim BlockFollower::victim(const EvictionList& list, const StepLog& step) {
  const std::size_t due = std::min(due_, list.size());
  while (eviction_ < due) {
    const PlannedVictim victim = EvictionList::victim_of(list.entries()[eviction_++], step);
    if (victim.value.valid()) {
      return victim;
    }
  }
  return {};
}

std::optional<PlannedFetch> BlockFollower::begin_fetch(const BlockPlan& plan, const StepLog& step,
                                                       const Engine& engine) {
  const auto is_spilled = [&](ValueId id) {
    return id.valid() && engine.value(id).spilled() && !engine.value(id).copying;
  };
  for (; !missing_.empty(); missing_.pop_back()) {
    const ValueId id = step.value(missing_.back().value);
    if (step.op_count() < kFirstOps && is_spilled(id)) {
      return PlannedFetch{.value = id, .place = missing_.back().place};
    }
  }
  for (; fetch_ < plan.fetches.size() && plan.fetches[fetch_].ops <= step.op_count(); ++fetch_) {
    const BlockPlan::Fetch& fetch = plan.fetches[fetch_];
    const ValueId id = step.value(fetch.value);
    if (is_spilled(id)) {
      due_ = std::max<std::size_t>(due_, fetch.evictions);
      return PlannedFetch{.value = id, .place = fetch.place};
    }
  }
  return std::nullopt;
}

// Whether the step has fetched the value, so that it is resident as planned.
bool BlockFollower::has_fetched(const BlockPlan& plan, const std::optional<Made>& value) const {
  return std::any_of(plan.fetches.begin(),
                     plan.fetches.begin() + static_cast<std::ptrdiff_t>(fetch_),
                     [&](const BlockPlan::Fetch& fetch) { return fetch.value == value; });
}

Arrangement BlockFollower::arrangement(const BlockPlan& plan, const StepLog& step,
                                       const Engine& engine) {
  std::multimap<BlockKind, PlannedPlace> places;
  for (const BlockPlan::Start& start : plan.starts) {
    places.emplace(start.kind, start.place);
  }
  const bool first = !std::exchange(begun_, true);
  const Pool& pool = engine.pool();
  Arrangement all;
  for (BlockId id = pool.first(); id.valid(); id = pool.next(id)) {
    const BlockView block = pool.view(id);
    if (block.free) {
      continue;
    }
    const StorageId storage = engine.storage_of(id);
    const std::optional<BlockKind> kind = kind_of(step, block.size, storage);
    const auto found = kind ? places.find(*kind) : places.end();
    if (found != places.end()) {
      const bool may_move = block.owner.valid() && !engine.value(block.owner).escaped;
      const PlannedPlace& place = found->second;
      if (place.at != block.offset && place.other != block.offset && may_move) {
        all.moves.push_back({.block = id, .to = place.at});
      }
      places.erase(found);
    } else if (first && engine.options().spill > Bytes(0) && storage.valid() &&
               !step.maker_in_step(storage) && !has_fetched(plan, step.name_of(storage))) {
      extra_.push_back(*step.name_of(storage));
    }
  }
  for (const Made& name : extra_) {
    if (const ValueId id = step.candidate(name); id.valid()) {
      all.victims.push_back({.value = id, .by = GetBack::kCopy});
    }
  }
  if (!first || places.empty() || engine.options().spill <= Bytes(0)) {
    return all;
  }
  engine.values().for_each_storage([&](StorageId storage, const HeldStorage& held) {
    const Value& value = engine.value(held.current);
    const bool spilled = value.spilled() && !value.copying;
    const auto kind = spilled ? kind_of(step, value.size, storage) : std::nullopt;
    const auto found = kind ? places.find(*kind) : places.end();
    if (found != places.end()) {
      missing_.push_back(
          {.size = value.size, .value = *step.name_of(storage), .place = found->second});
      places.erase(found);
    }
  });
  return all;
}

}  // namespace recoup::detail
