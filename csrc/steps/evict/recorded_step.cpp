#include "csrc/steps/evict/recorded_step.h"

#include <deque>
#include <map>
#include <utility>

namespace recoup::detail {

StepRecorder::StepRecorder(const Engine& engine, const StepLog& log) : engine_(engine), log_(log) {
  const Pool& pool = engine.pool();
  step_.options = engine.options();
  step_.options.budget = engine.budget();
  step_.options.outside = engine.outside();
  step_.options.move_ns_per_byte = engine.context().move_price.ns_per_byte;
  step_.placer.learn_from(engine.context().placer);
  step_.window = window();
  step_.unseen = engine.context().charges.external - step_.options.outside - step_.window;
  for (BlockId id = pool.first(); id.valid(); id = pool.next(id)) {
    if (const BlockView block = pool.view(id); !block.free) {
      add_block(id, block);
    }
  }
  engine.values().for_each_storage(
      [this](StorageId id, const HeldStorage& storage) { add_storage(id, storage); });
}

// A block of a value without a storage stays as it is: whatever needs it still needs it.
void StepRecorder::add_block(BlockId id, const BlockView& block) {
  recorder_.on_allocate(id, block.size);
  const StorageId storage = engine_.storage_in(id);
  step_.pool.blocks.emplace_back(place_of(block, storage));
  step_.blocks.push_back(
      {.kind = BlockKind::of(block.size, storage,
                             storage.valid() ? log_.maker_in_last_step(storage) : std::nullopt),
       .fixed = is_fixed(block)});
  if (storage.valid()) {
    const Bytes nbytes = engine_.value(engine_.current(storage)).nbytes;
    recorder_.on_adopt({.block = id, .nbytes = nbytes}, storage);
  }
}

// An evicted storage takes no bytes and cannot be a victim in this step.
void StepRecorder::add_storage(StorageId id, const HeldStorage& storage) {
  const Value& value = engine_.value(storage.current);
  if (storage.window) {
    return;  // see RecordedStep::window
  }
  if (!value.block.valid()) {
    const bool charged = value.external != nullptr && !value.flags.among_outside;
    step_.unseen -= charged ? value.size : Bytes(0);
    recorder_.on_external(id, {.nbytes = charged ? value.nbytes : Bytes(0)});
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

bool StepRecorder::is_fixed(const BlockView& block) const {
  return !block.owner.valid() || !engine_.value(block.owner).movable();
}

StartingPool::Place StepRecorder::place_of(const BlockView& block, StorageId storage) const {
  return {.offset = block.offset,
          .size = block.size,
          .placed = storage.valid() && engine_.values()[storage].placed};
}

StartingPool StepRecorder::pool_at_end() const {
  const Pool& pool = engine_.pool();
  std::map<BlockKind, std::deque<StartingPool::Place>> now;
  for (BlockId id = pool.first(); id.valid(); id = pool.next(id)) {
    if (const BlockView block = pool.view(id); !block.free) {
      const StorageId storage = engine_.storage_in(id);
      now[BlockKind::of(block.size, storage,
                        storage.valid() ? log_.maker_in_step(storage) : std::nullopt)]
          .push_back(place_of(block, storage));
    }
  }
  StartingPool found;
  for (const RecordedStep::Before& before : step_.blocks) {
    const auto counterparts = now.find(before.kind);
    if (counterparts == now.end() || counterparts->second.empty()) {
      found.blocks.emplace_back();
    } else {
      found.blocks.emplace_back(counterparts->second.front());
      counterparts->second.pop_front();
    }
  }
  for (const auto& [kind, places] : now) {
    found.others.insert(found.others.end(), places.begin(), places.end());
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
  // After another step the blocks from before have counterparts in neither run.
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
