// What a value may be, and the one function that changes it.
//
//   state      residency   bytes           leaves it by
//   leaf       resident    block/external  write -> new value; death -> freed or kept
//   resident   resident    block           evict; write; make_leaf; death
//   evicted    evicted     -               Replayer (bytes come back); death
//   lost       lost        -               its record goes with its last consumer
//
// A value without a storage is dead (the user let it go) or an old version (a write superseded it).
#include "csrc/engine/values.h"

#include <utility>

#include "csrc/base/check.h"

namespace recoup::detail {

Values::Values(const Options& options, Device& device, Pool& pool, Lineage& lineage,
               Candidates& candidates, Verifier& verifier, Stats& stats, const Tick& now)
    : options_(options),
      device_(device),
      pool_(pool),
      lineage_(lineage),
      candidates_(candidates),
      verifier_(verifier),
      stats_(stats),
      now_(now) {}

void Values::transition(ValueId id, Residency to, BlockId block) {
  Value& value = lineage_[id];
  RECOUP_CHECK(value.residency != to, "value ", id.index());
  candidates_.before_transition(id, value, to);
  switch (to) {
    case Residency::kResident:
      value.block = block;
      pool_.set_owner(block, id.index() + 1);
      value.residency = to;
      ++value.recomputes;
      candidates_.after_transition(id, to);
      if (value.storage.valid()) {
        device_.attach(storages_[value.storage].handle, pool_.view(block).offset);
      }
      break;
    case Residency::kEvicted:
    case Residency::kLost:
      RECOUP_CHECK(!value.external && !value.escaped);
      if (value.resident()) {
        // A storage has been told before, by detach in evict_value: it may refuse.
        if (value.block.valid()) {
          free_bytes(value.block);
          value.block = BlockId();
        }
        if (value.dead_leaf) {
          charges_.dead_leaves -= value.size;
          value.dead_leaf = false;
        }
      }
      value.residency = to;
      value.kept = false;
      candidates_.after_transition(id, to);
      break;
  }
  candidates_.update(id, value);
  lineage_.update_demand(id, settle_work_);
}

void Values::hard_pin(ValueId id) {
  Value& value = lineage_[id];
  if (++value.hard_pins == 1) {
    candidates_.update(id);
    if (value.evicted()) {
      lineage_.update_demand(id, settle_work_);
    }
  }
}

void Values::soft_pin(ValueId id) {
  if (++lineage_[id].soft_pins == 1) {
    candidates_.update(id);
    if (lineage_[id].evicted()) {
      lineage_.update_demand(id, settle_work_);
    }
  }
}

void Values::soft_unpin(ValueId id) {
  if (--lineage_[id].soft_pins == 0) {
    candidates_.update(id);
  }
}

void Values::settle(ValueId id) {
  settle_work_.push_back(id);
  drain();
}

void Values::drain() {
  if (settling_) {
    return;
  }
  settling_ = true;
  while (!settle_work_.empty()) {
    const ValueId next = settle_work_.back();
    settle_work_.pop_back();
    if (lineage_.contains(next)) {
      settle_one(next);
    }
  }
  settling_ = false;
}

void Values::settle_one(ValueId id) {
  Value& value = lineage_[id];
  if (value.evicted()) {
    lineage_.update_demand(id, settle_work_);
  }
  if (value.held()) {
    return;
  }
  if (!lineage_.has_consumers(id)) {
    remove_record(id);
    return;
  }
  // Useless: everything that could be replayed from it has its bytes, or nobody needs it.
  if (options_.usefulness && value.evictable() && !value.needed() && !value.kept) {
    transition(id, Residency::kEvicted);
    ++stats_.drops;
  }
}

void Values::remove_record(ValueId id) {
  Value& value = lineage_[id];
  if (value.external) {
    charges_.external -= value.among_outside ? Bytes(0) : value.size;
    device_.forget(value.external);
    value.external = nullptr;
  }
  value.escaped = false;
  if (value.residency != Residency::kLost) {
    transition(id, Residency::kLost);
  }
  verifier_.forget(id);
  cut(id);
  if (!lineage_.has_consumers(id)) {
    lineage_.remove_value(id);
  }
}

// Cuts a value from its lineage. Its bytes, if any, are all there is of it from now on.
void Values::make_leaf(ValueId id) {
  if (!lineage_[id].leaf()) {
    candidates_.before_leaf(id);
    cut(id);
    candidates_.update(id);
    count_dead_leaf(id);
  }
}

void Values::count_dead_leaf(ValueId id) {
  Value& value = lineage_[id];
  if (value.leaf() && !value.storage.valid() && value.block.valid() && !value.dead_leaf) {
    value.dead_leaf = true;
    charges_.dead_leaves += value.size;
  }
}

void Values::cut(ValueId id) {
  const OpId producer = lineage_[id].producer;
  if (!producer.valid()) {
    return;
  }
  candidates_.before_cut(id);
  if (lineage_.cut(id).valid()) {
    release_payload(lineage_[producer].payload);
    lineage_.remove_op(producer, [this](ValueId orphan, const Value& value) {
      // For the others nothing follows: they are settled when their storage dies or their last pin
      // goes.
      if (!value.resident() || (!value.storage.valid() && value.hard_pins == 0)) {
        settle_work_.push_back(orphan);
      }
    });
  } else {
    lineage_.update_demand(producer, settle_work_);
  }
}

Location Values::location(ValueId id) const {
  const Value& value = lineage_[id];
  RECOUP_CHECK(value.resident());
  if (value.external != nullptr) {
    return {.external = value.external, .offset = {}};
  }
  return {.external = nullptr, .offset = pool_.view(value.block).offset};
}

void Values::return_block(BlockId block) {
  const BlockView view = pool_.view(block);
  RECOUP_CHECK(view.owner == 0, "freed a block that a value owns");
  charges_.kernel_held -= view.size;
  --charges_.kernel_blocks;
  free_bytes(block);
}

void Values::give_back(ValueId id, BlockId block) {
  if (!id.valid() || !lineage_[id].evicted() || (options_.usefulness && !lineage_[id].needed())) {
    return_block(block);
    return;
  }
  RECOUP_CHECK(pool_.view(block).size == lineage_[id].size, "a replay made ",
               pool_.view(block).size.count(), " bytes where the op made ",
               lineage_[id].size.count());
  charges_.kernel_held -= lineage_[id].size;
  --charges_.kernel_blocks;
  transition(id, Residency::kResident, block);
  lineage_[id].last_access = now_;
  candidates_.touch(id);
}

// In this order `from` is not asked for again in between, with all that it was made from.
void Values::hand_over(ValueId from, ValueId to) {
  const BlockId block = std::exchange(lineage_[from].block, BlockId());
  pool_.set_owner(block, 0);
  charges_.kernel_held += lineage_[from].size;
  ++charges_.kernel_blocks;
  give_back(to, block);
  transition(from, Residency::kEvicted);
}

// A new value becomes what the storage holds: it takes over the bytes, where they are, and all that
// belongs to whoever has them. The old one has none from now on, and no storage.
ValueId Values::pass_on(StorageId id) {
  HeldStorage& storage = storages_[id];
  const ValueId before = storage.current;
  const auto [after, now] = lineage_.emplace_value();
  Value& old = lineage_[before];
  now.size = old.size;
  now.nbytes = old.nbytes;
  now.storage = std::exchange(old.storage, StorageId());
  now.block = std::exchange(old.block, BlockId());
  now.external = std::exchange(old.external, nullptr);
  now.among_outside = std::exchange(old.among_outside, false);
  now.escaped = std::exchange(old.escaped, false);
  now.frozen = old.frozen;
  now.last_access = now_;
  now.hard_pins = now.fixed = storage.user_pins;
  old.hard_pins -= storage.user_pins;
  old.fixed -= storage.user_pins;
  storage.current = after;
  if (now.block.valid()) {
    pool_.set_owner(now.block, after.index() + 1);
  }
  return after;
}

// A version that a storage no longer has gets a copy of the bytes that it had.
void Values::give_copy(ValueId before, BlockId block) {
  Value& value = lineage_[before];
  value.block = block;
  charges_.kernel_held -= value.size;
  --charges_.kernel_blocks;
  pool_.set_owner(block, before.index() + 1);
  count_dead_leaf(before);
}

void Values::release_payload(void* payload) noexcept {
  charges_.device_books -= static_cast<std::ptrdiff_t>(device_.payload_bytes(payload));
  device_.release(payload);
}

void Values::end(ValueId id) {
  const Value& value = lineage_[id];
  if (settling_ || value.evicted() || value.held()) {
    settle(id);
    return;
  }
  settling_ = true;  // the usual end: what settle would do, without the detour over its list
  remove_record(id);
  settling_ = false;
  drain();
}

void Values::free_bytes(BlockId block) {
  if (options_.aids.poison) [[unlikely]] {
    device_.poison(pool_.offset(block), pool_.size(block));
  }
  pool_.free(block);
}

}  // namespace recoup::detail
