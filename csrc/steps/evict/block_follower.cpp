#include "csrc/steps/evict/block_follower.h"

#include <algorithm>
#include <map>

namespace recoup::detail {

std::optional<PlannedPlace> BlockFollower::begin_block(const BlockPlan& plan, const StepLog& step,
                                                       Bytes size) {
  const std::uint32_t ops = step.op_count();
  while (entry_ < plan.entries.size() && plan.entries[entry_].ops < ops) {
    ++entry_;
  }
  for (std::size_t i = entry_; i < plan.entries.size() && plan.entries[i].ops == ops; ++i) {
    if (plan.entries[i].size == size) {
      entry_ = i + 1;
      due_ = plan.entries[i].evictions;
      return plan.entries[i].place;
    }
  }
  ++elsewhere_;
  return std::nullopt;
}

ValueId BlockFollower::victim(const EvictionList& list, const StepLog& step) {
  const std::size_t due = std::min(due_, list.size());
  while (eviction_ < due) {
    if (const ValueId victim = step.candidate(list.entries()[eviction_++].victim); victim.valid()) {
      return victim;
    }
  }
  return {};
}

std::vector<Move> arrangement(const BlockPlan& plan, const Engine& engine, const StepLog& step) {
  std::multimap<BlockKind, PlannedPlace> places;
  for (const BlockPlan::Start& start : plan.starts) {
    places.emplace(start.kind, start.place);
  }
  const Pool& pool = engine.pool();
  std::vector<Move> moves;
  for (BlockId id = pool.first(); id.valid(); id = pool.next(id)) {
    const BlockView block = pool.view(id);
    if (block.free) {
      continue;
    }
    const StorageId storage = engine.storage_in(id);
    const auto found = places.find(BlockKind::of(
        block.size, storage, storage.valid() ? step.maker_in_last_step(storage) : std::nullopt));
    if (found != places.end()) {
      const bool may_move = block.owner.valid() && !engine.value(block.owner).escaped;
      const PlannedPlace& place = found->second;
      if (place.at != block.offset && place.other != block.offset && may_move) {
        moves.push_back({.block = id, .to = place.at});
      }
      places.erase(found);
    }
  }
  return moves;
}

}  // namespace recoup::detail
