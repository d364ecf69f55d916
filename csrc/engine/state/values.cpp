// States of a value. Values::transition is the only function that changes the residency.
//
//   state             residency   bytes             leaves it by
//   non-recomputable  resident    block, external   write -> new value; death -> freed or kept
//   recomputable      resident    block             evict; write; make_non_recomputable; death
//   evicted           evicted     -                 Replayer restores it; death
//   spilled           spilled     slot              Replayer fetches it; death
//   clean             resident    block and slot    as the first two; spilling needs no write
//   lost              lost        -                 its record ends with its last consumer
//
// A value without a storage is dead (its storage is gone) or an old version (superseded by a
// write).
#include "csrc/engine/state/values.h"

#include <chrono>
#include <utility>

#include "csrc/base/check.h"
#include "csrc/engine/state/recount.h"

namespace recoup::detail {

Values::Values(Context& context, Candidates& candidates, Verifier& verifier)
    : context_(context),
      device_(context.device),
      pool_(context.pool),
      lineage_(context.lineage),
      charges_(context.charges),
      candidates_(candidates),
      verifier_(verifier),
      next_birth_(
          static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count())) {
}

void Values::transition(ValueId id, Residency to, BlockId block) {
  Value& value = lineage_[id];
  RECOUP_CHECK(value.residency != to, "value ", id.index());
  candidates_.before_transition(id, value, to);
  charges_.spilled += to == Residency::kSpilled ? value.size : Bytes(0);
  charges_.spilled -= value.spilled() ? value.size : Bytes(0);
  switch (to) {
    case Residency::kResident:
      value.block = block;
      pool_.set_owner(block, id);
      value.recomputes += value.evicted() ? 1U : 0U;
      value.residency = to;
      candidates_.after_transition(id, to);
      if (value.storage.valid()) {
        device_.attach(storages_[value.storage].handle, pool_.view(block).offset);
      }
      break;
    case Residency::kSpilled:
    case Residency::kEvicted:
    case Residency::kLost:
      RECOUP_CHECK(!value.external && !value.escaped && !value.copying);
      if (value.resident()) {
        // The caller has taken the bytes from the storage by Device::detach, which may refuse.
        if (value.block.valid()) {
          free_bytes(value.block);
          value.block = BlockId();
        }
        if (value.flags.dead_source) {
          charges_.dead_sources -= value.size;
          charges_.dead_frozen -= value.flags.frozen ? value.size : Bytes(0);
          value.flags.dead_source = false;
        }
      }
      if (to != Residency::kSpilled) {
        give_back_slot(value);
      }
      value.residency = to;
      value.flags.kept = false;
      candidates_.after_transition(id, to);
      break;
  }
  candidates_.update(id, value);
  lineage_.update_demand(id, collect_work_);
}

void Values::give_back_slot(Value& value) {
  if (value.slot.valid()) {
    context_.tier.give_back(std::exchange(value.slot, BlockId()));
  }
}

void Values::stop_copying(ValueId id) {
  if (lineage_[id].copying) {
    context_.copy_wait->wait(id);
  }
}

void Values::drop_copy(ValueId id) {
  RECOUP_CHECK(lineage_[id].resident() && !lineage_[id].copying);
  give_back_slot(lineage_[id]);
}

void Values::soft_pin(ValueId id) {
  if (++lineage_[id].soft_pins == 1) {
    candidates_.update(id);
    if (lineage_[id].evicted()) {
      lineage_.update_demand(id, collect_work_);
    }
  }
}

void Values::soft_unpin(ValueId id) {
  if (--lineage_[id].soft_pins == 0) {
    candidates_.update(id);
  }
}

void Values::collect(ValueId id) {
  collect_work_.push_back(id);
  drain();
}

void Values::drain() {
  if (collecting_) {
    return;
  }
  collecting_ = true;
  while (!collect_work_.empty()) {
    const ValueId next = collect_work_.back();
    collect_work_.pop_back();
    if (lineage_.contains(next)) {
      collect_one(next);
    }
  }
  collecting_ = false;
}

void Values::collect_one(ValueId id) {
  Value& value = lineage_[id];
  if (value.evicted()) {
    lineage_.update_demand(id, collect_work_);
  }
  if (value.held()) {
    return;
  }
  if (!lineage_.has_consumers(id)) {
    remove_record(id);
    return;
  }
  // Useless: every value that could be replayed from it has its bytes or is not needed.
  const bool replayable = value.recomputable() && (value.evictable() || value.spilled());
  if (context_.options.usefulness && replayable && !value.needed() && !value.flags.kept) {
    transition(id, Residency::kEvicted);
    ++context_.stats.drops;
  }
}

void Values::remove_record(ValueId id) {
  Value& value = lineage_[id];
  if (value.external) {
    context_.charge_outside(value.flags.among_outside ? Bytes(0) : -value.size);
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

void Values::make_non_recomputable(ValueId id, NoReplay why) {
  if (lineage_[id].recomputable()) {
    lineage_[id].flags.why = why;
    candidates_.before_non_recomputable(id);
    cut(id);
    candidates_.update_cost(id);
    count_dead_source(id);
  }
}

void Values::count_dead_source(ValueId id) {
  Value& value = lineage_[id];
  if (!value.recomputable() && !value.storage.valid() && value.block.valid() &&
      !value.flags.dead_source) {
    value.flags.dead_source = true;
    charges_.dead_sources += value.size;
    charges_.dead_frozen += value.flags.frozen ? value.size : Bytes(0);
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
      if (value.external != nullptr && !lineage_.has_consumers(orphan)) {
        device_.let_go(value.external);
      }
      // The other orphans need no action now: they are collected when their storage dies or their
      // last pin is released.
      if (!value.resident() || (!value.storage.valid() && value.hard_pins == 0)) {
        collect_work_.push_back(orphan);
      }
    });
  } else {
    lineage_.update_demand_after_cut(producer, collect_work_);
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

StorageId Values::add_storage(const FreshStorage& fresh) {
  const Bytes size = pool_.size(fresh.block);
  const auto [storage, added] = storages_.emplace();
  const auto [id, value] = lineage_.emplace_value();
  value.size = size;
  value.nbytes = fresh.nbytes;
  value.storage = storage;
  value.block = fresh.block;
  value.spillable = tier_takes(value);
  value.last_access = context_.now;
  added = {.current = id, .handle = fresh.handle, .birth = next_birth_++, .placed = fresh.placed};
  pool_.set_owner(fresh.block, id);
  made(id);
  charges_.remove_kernel_block(size);
  charges_.plain += size;
  candidates_.update(id, value);
  return storage;
}

ValueId Values::remove_storage(StorageId storage) {
  const HeldStorage& dead = storages_[storage];
  const ValueId id = dead.current;
  Value& value = lineage_[id];
  value.hard_pins -= dead.user_pins;
  value.fixed -= dead.user_pins;
  set_immovable(storages_[storage], false);
  storages_.remove(storage);
  value.storage = StorageId();
  value.flags.stays = false;
  if (value.external == nullptr) {
    charges_.plain -= value.size;
    count_dead_source(id);
  }
  if (value.block.valid()) {
    value.escaped = false;
  }
  candidates_.update(id, value);
  return id;
}

ValueTicket Values::ticket(ValueId id) const {
  const OpId producer = lineage_[id].producer;
  return producer.valid() ? ValueTicket{.value = id, .made_by = lineage_[producer].sequence}
                          : ValueTicket{};
}

bool Values::holds(const ValueTicket& ticket) const {
  return ticket.value.valid() && lineage_.contains(ticket.value) &&
         lineage_[ticket.value].producer.valid() &&
         lineage_[lineage_[ticket.value].producer].sequence == ticket.made_by;
}

void Values::disown(ValueId id) {
  stop_copying(id);
  drop_copy(id);
  lineage_[id].escaped = true;
  set_immovable(storages_[lineage_[id].storage], true);
  // If a running op overwrites the value, its bytes may be half overwritten. It keeps its lineage
  // then, so that its dependents can be replayed from its inputs.
  if (!lineage_[id].writing) {
    make_non_recomputable(id, NoReplay::kEscaped);
  }
  candidates_.update(id);
  drain();
}

void Values::free_kernel_block(BlockId block) {
  const BlockView view = pool_.view(block);
  RECOUP_CHECK(!view.owner.valid(), "freed a block that a value owns");
  charges_.remove_kernel_block(view.size);
  free_bytes(block);
}

void Values::give_block(ValueId id, KernelBlock block) {
  if (!id.valid() || !lineage_[id].evicted() ||
      (context_.options.usefulness && !lineage_[id].needed())) {
    return;
  }
  const Bytes size = pool_.size(block.id());
  RECOUP_CHECK(size == lineage_[id].size, "a replay made ", size.count(),
               " bytes where the op made ", lineage_[id].size.count());
  transition(id, Residency::kResident, take_over(std::move(block)));
  lineage_[id].last_access = context_.now;
  candidates_.touch(id);
}

// `to` gets its bytes before `from` is evicted. In the other order `to` would demand `from` and its
// ancestors in between.
void Values::hand_over(ValueId from, ValueId to) {
  const BlockId block = std::exchange(lineage_[from].block, BlockId());
  pool_.set_owner(block, ValueId());
  give_block(to, charge_block(block, lineage_[from].size));
  transition(from, Residency::kEvicted);
}

// The new value takes over the bytes in place, and all properties that belong to their owner. The
// old value has neither bytes nor a storage from now on.
ValueId Values::add_version(StorageId id) {
  stop_copying(storages_[id].current);
  HeldStorage& storage = storages_[id];
  const ValueId before = storage.current;
  const auto [after, now] = lineage_.emplace_value();
  made(after);
  Value& old = lineage_[before];
  now.size = old.size;
  now.nbytes = old.nbytes;
  now.storage = std::exchange(old.storage, StorageId());
  now.block = std::exchange(old.block, BlockId());
  now.external = std::exchange(old.external, nullptr);
  if (now.external != nullptr) {
    device_.let_go(now.external);  // no record reads the new version
  }
  now.flags.among_outside = std::exchange(old.flags.among_outside, false);
  now.escaped = std::exchange(old.escaped, false);
  now.flags.frozen = old.flags.frozen;
  now.flags.stays = old.flags.stays;
  old.flags.stays = false;
  now.flags.off_tier = old.flags.off_tier;
  now.spillable = now.block.valid() && tier_takes(now);
  now.last_access = context_.now;
  now.hard_pins = now.fixed = storage.user_pins;
  old.hard_pins -= storage.user_pins;
  old.fixed -= storage.user_pins;
  storage.current = after;
  if (now.block.valid()) {
    pool_.set_owner(now.block, after);
  }
  candidates_.update(after, now);
  return after;
}

void Values::give_copy(ValueId before, KernelBlock block) {
  Value& value = lineage_[before];
  value.block = take_over(std::move(block));
  pool_.set_owner(value.block, before);
  count_dead_source(before);
  candidates_.update(before, value);
}

void Values::release_payload(void* payload) noexcept {
  charges_.device_metadata -= static_cast<std::ptrdiff_t>(device_.payload_bytes(payload));
  device_.release(payload);
}

void Values::end(ValueId id) {
  const Value& value = lineage_[id];
  if (collecting_ || value.evicted() || value.held()) {
    collect(id);
    return;
  }
  collecting_ = true;  // the usual case: as collect, but without its work list
  remove_record(id);
  collecting_ = false;
  drain();
}

void Values::free_bytes(BlockId block) {
  if (context_.aids.poison && !context_.keep_bytes) [[unlikely]] {
    device_.poison(pool_.offset(block), pool_.size(block));
  }
  pool_.free(block);
}

void Values::check(bool at_rest) const {
  RECOUP_CHECK(!collecting_ && collect_work_.empty());
  Recount(context_, storages_).check(at_rest);
}

}  // namespace recoup::detail
