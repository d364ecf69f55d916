#include "csrc/steps/trial/recorded_step.h"

#include <deque>
#include <map>
#include <set>
#include <utility>

namespace recoup::detail {

void RecordedStep::set_costs(std::span<const Nanoseconds> costs) {
  auto cost = costs.begin();
  for (TraceOp& op : trace.ops) {
    if (!op.failed && cost != costs.end()) {
      op.cost = *cost++;
    }
  }
}

StepRecorder::StepRecorder(const Engine& engine, const StepLog& log) : engine_(engine), log_(log) {
  const Pool& pool = engine.pool();
  step_.options = engine.options();
  step_.options.budget = engine.budget();
  step_.options.outside = engine.outside();
  step_.options.move_ns_per_byte = engine.context().move_price.ns_per_byte;
  step_.placer.learn_from(engine.context().placer);
  step_.window = window();
  step_.unseen = engine.context().charges.external - step_.options.outside - step_.window;
  const TierSpeed& speed = engine.context().tier.speed();
  step_.options.spill_write_ns_per_byte = speed.write_ns_per_byte;
  step_.options.spill_read_ns_per_byte = speed.read_ns_per_byte;
  step_.options.spill_request_ns = static_cast<double>(speed.each.count());
  std::uint32_t unused = 0;  // an id that no block has
  for (BlockId id = pool.first(); id.valid(); id = pool.next(id)) {
    unused = std::max(unused, id.index() + 1);
    if (const BlockView block = pool.view(id); !block.free) {
      add_block(id, block);
    }
  }
  engine.values().for_each_storage([&](StorageId id, const HeldStorage& storage) {
    if (is_spilled(storage)) {
      add_spilled(BlockId(unused++), id);
    }
  });
  engine.values().for_each_storage(
      [this](StorageId id, const HeldStorage& storage) { add_storage(id, storage); });
}

// A block of a value without a storage stays as it is: whatever needs it still needs it.
void StepRecorder::add_block(BlockId id, const BlockView& block) {
  recorder_.on_allocate(id, block.size);
  const StorageId storage = engine_.storage_of(id);
  step_.pool.blocks.emplace_back(place_of(block, storage));
  step_.pool.tier.clean.push_back(is_clean(storage));
  step_.blocks.push_back(
      {.kind = BlockKind::of(block.size, storage,
                             storage.valid() ? log_.maker_in_last_step(storage) : std::nullopt),
       .fixed = is_fixed(block, storage)});
  if (storage.valid()) {
    const Bytes nbytes = engine_.value(engine_.current(storage)).nbytes;
    recorder_.on_adopt({.block = id, .nbytes = nbytes}, storage);
    step_.blocks.back().storage = static_cast<std::uint32_t>(step_.names.size());
    step_.names.push_back(*log_.name_of(storage));
  }
}

void StepRecorder::add_spilled(BlockId id, StorageId storage) {
  const Value& value = engine_.value(engine_.current(storage));
  const std::size_t block = step_.blocks.size();
  recorder_.on_allocate(id, value.size);
  step_.pool.blocks.emplace_back();
  step_.pool.tier.spilled.resize(block + 1);
  step_.pool.tier.spilled[block] = true;
  step_.blocks.push_back(
      {.kind = BlockKind::of(value.size, storage, log_.maker_in_last_step(storage)),
       .storage = static_cast<std::uint32_t>(step_.names.size())});
  recorder_.on_adopt({.block = id, .nbytes = value.nbytes}, storage);
  step_.names.push_back(*log_.name_of(storage));
}

// A storage that was evicted, and not spilled, takes no bytes and cannot be a victim in this step.
void StepRecorder::add_storage(StorageId id, const HeldStorage& storage) {
  const Value& value = engine_.value(storage.current);
  if (storage.window) {
    return;  // see RecordedStep::window
  }
  if (!value.block.valid() && !value.spilled()) {
    const bool charged = value.external != nullptr && !value.flags.among_outside;
    step_.unseen -= charged ? value.size : Bytes(0);
    recorder_.on_external(id, {.nbytes = charged ? value.nbytes : Bytes(0)});
    step_.names.push_back(*log_.name_of(id));
  }
  for (std::int32_t pin = 0; pin < storage.user_pins; ++pin) {
    recorder_.on_pin(id);
  }
  if (value.flags.stays) {
    recorder_.on_rule(id, StorageRule::kStays);
  }
  if (value.flags.off_tier) {
    recorder_.on_rule(id, StorageRule::kOffTier);
  }
  if (value.escaped) {
    recorder_.on_escape(id);
  }
}

bool StepRecorder::is_clean(StorageId storage) const {
  return storage.valid() && engine_.value(engine_.current(storage)).clean();
}

// Not if it is being read.
bool StepRecorder::is_spilled(const HeldStorage& storage) const {
  const Value& value = engine_.value(storage.current);
  return value.spilled() && !value.copying;
}

// An async copy ends before the block has to move. A block into which nothing is being read has no
// owner if a kernel has it.
bool StepRecorder::is_fixed(const BlockView& block, StorageId storage) const {
  if (!block.owner.valid() && !storage.valid()) {
    return true;
  }
  const Value& value = engine_.value(block.owner.valid() ? block.owner : engine_.current(storage));
  return value.escaped || (!value.movable() && !value.copying);
}

StartingPool::Place StepRecorder::place_of(const BlockView& block, StorageId storage) const {
  return {.offset = block.offset,
          .size = block.size,
          .placed = storage.valid() && engine_.values()[storage].placed};
}

StartingPool StepRecorder::pool_at_end() const {
  const Pool& pool = engine_.pool();
  struct Now {
    StartingPool::Place place;
    bool clean = false;
  };
  std::map<BlockKind, std::deque<Now>> now;
  for (BlockId id = pool.first(); id.valid(); id = pool.next(id)) {
    if (const BlockView block = pool.view(id); !block.free) {
      const StorageId storage = engine_.storage_of(id);
      now[BlockKind::of(block.size, storage,
                        storage.valid() ? log_.maker_in_step(storage) : std::nullopt)]
          .push_back({.place = place_of(block, storage), .clean = is_clean(storage)});
    }
  }
  std::multiset<BlockKind> spilled;
  engine_.values().for_each_storage([&](StorageId id, const HeldStorage& storage) {
    if (is_spilled(storage)) {
      spilled.insert(
          BlockKind::of(engine_.value(storage.current).size, id, log_.maker_in_step(id)));
    }
  });
  StartingPool found;
  for (const RecordedStep::Before& before : step_.blocks) {
    const auto counterparts = now.find(before.kind);
    const auto in_tier = spilled.find(before.kind);
    found.tier.spilled.push_back(in_tier != spilled.end());
    found.tier.clean.push_back(false);
    if (in_tier != spilled.end()) {
      spilled.erase(in_tier);
      found.blocks.emplace_back();
    } else if (counterparts == now.end() || counterparts->second.empty()) {
      found.blocks.emplace_back();
    } else {
      found.blocks.emplace_back(counterparts->second.front().place);
      found.tier.clean.back() = counterparts->second.front().clean;
      counterparts->second.pop_front();
    }
  }
  for (const auto& [kind, places] : now) {
    for (const Now& other : places) {
      found.others.push_back(other.place);
    }
  }
  return found;
}

Bytes StepRecorder::window() const {
  Bytes charged{0};
  engine_.values().for_each_storage([&](StorageId, const HeldStorage& storage) {
    charged += storage.window ? engine_.value(storage.current).size : Bytes(0);
  });
  return charged;
}

RecordedStep StepRecorder::take(bool repeats) {
  step_.trace = builder_.take();
  step_.enough = engine_.context().enough;
  step_.end = engine_.context().pool_end();
  if (const UseForecast* const forecast = engine_.context().forecast; forecast != nullptr) {
    step_.waited_part = forecast->waited_part();
  }
  // After another step the blocks from before have counterparts in neither run.
  step_.repeats = repeats;
  step_.has_places = repeats && step_.options.addresses <= Bytes(0) &&
                     step_.options.block_size <= Bytes(0) && engine_.context().more == nullptr;
  if (repeats) {
    step_.pool = pool_at_end();
    step_.window = window();
    step_.placer.learn_from(engine_.context().placer);
  }
  return std::move(step_);
}

}  // namespace recoup::detail
