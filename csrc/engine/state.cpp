// What a value may be, and the one function that changes it.
//
//   state      residency   bytes           leaves it by
//   leaf       resident    block/external  write -> new value; death -> freed or kept
//   resident   resident    block           evict_value; write; make_leaf; death
//   evicted    evicted     -               Replayer (bytes come back); death
//   lost       lost        -               its record goes with its last consumer
//
// A value without a storage is dead (the user let it go) or an old version (a write superseded it).
#include "csrc/engine/engine.h"
#include "csrc/engine/replay.h"

namespace recoup::detail {

void Engine::transition(ValueId id, Residency to, BlockId block) {
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
          dead_leaves_ -= value.size;
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

void Engine::hard_pin(ValueId id) {
  Value& value = lineage_[id];
  if (++value.hard_pins == 1) {
    candidates_.update(id);
    if (value.evicted()) {
      lineage_.update_demand(id, settle_work_);
    }
  }
}

void Engine::soft_pin(ValueId id) {
  if (++lineage_[id].soft_pins == 1) {
    candidates_.update(id);
    if (lineage_[id].evicted()) {
      lineage_.update_demand(id, settle_work_);
    }
  }
}

void Engine::soft_unpin(ValueId id) {
  if (--lineage_[id].soft_pins == 0) {
    candidates_.update(id);
  }
}

void Engine::settle(ValueId id) {
  settle_work_.push_back(id);
  drain();
}

void Engine::drain() {
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

void Engine::settle_one(ValueId id) {
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

void Engine::remove_record(ValueId id) {
  Value& value = lineage_[id];
  if (value.external) {
    external_ -= value.among_outside ? Bytes(0) : value.size;
    device_.forget(value.external);
    value.external = nullptr;
  }
  value.escaped = false;
  if (value.residency != Residency::kLost) {
    transition(id, Residency::kLost);
  }
  if (options_.verify) {
    hashes_.erase(id);
  }
  cut(id);
  if (!lineage_.has_consumers(id)) {
    lineage_.remove_value(id);
  }
}

// Cuts a value from its lineage. Its bytes, if any, are all there is of it from now on.
void Engine::make_leaf(ValueId id) {
  if (!lineage_[id].leaf()) {
    candidates_.before_leaf(id);
    cut(id);
    candidates_.update(id);
    count_dead_leaf(id);
  }
}

void Engine::count_dead_leaf(ValueId id) {
  Value& value = lineage_[id];
  if (value.leaf() && !value.storage.valid() && value.block.valid() && !value.dead_leaf) {
    value.dead_leaf = true;
    dead_leaves_ += value.size;
  }
}

void Engine::cut(ValueId id) {
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

Location Engine::location(ValueId id) const {
  const Value& value = lineage_[id];
  RECOUP_CHECK(value.resident());
  if (value.external != nullptr) {
    return {.external = value.external, .offset = {}};
  }
  return {.external = nullptr, .offset = pool_.view(value.block).offset};
}

}  // namespace recoup::detail
