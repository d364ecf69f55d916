// Recording a finished op: its outputs get values, what it wrote gets the next version.
//
// Note [Versions]
// A write to a value with lineage makes a new value in the same place; the old one stays as an
// evicted value, with its lineage and without a storage (Coop's recomputable in-place):
//
//   before   storage s -- v1 [block] <- op1
//   after    storage s -- v2 [block] <- op2, which reads v1
//                         v1 [evicted, dead] <- op1
//
// A write to a leaf makes a leaf: what the leaf held before is gone (Note [Freeze] saw to it).
#include <algorithm>

#include "csrc/engine/engine.h"

namespace recoup::detail {

StorageId Engine::add_storage(const FreshStorage& fresh) {
  const Bytes size = pool_.size(fresh.block);
  const auto [storage, added] = storages_.emplace();
  const auto [id, value] = lineage_.emplace_value();
  value.size = size;
  value.nbytes = fresh.nbytes;
  value.storage = storage;
  value.block = fresh.block;
  value.last_access = now_;
  added = {.current = id, .handle = fresh.handle, .birth = next_birth_++};
  pool_.set_owner(fresh.block, id.index() + 1);
  charges_.kernel_held -= size;
  --charges_.kernel_blocks;
  charges_.plain += size;
  return storage;
}

StorageId Engine::adopt(const FreshStorage& fresh) {
  const StorageId storage = add_storage(fresh);
  if (observer_ != nullptr) {
    observer_->on_adopt(fresh, storage);
  }
  return storage;
}

void Engine::charge_external(Bytes size) {
  enough_.charge(plain_state(), size);
  if (shortfall(size) > Bytes(0)) {
    device_.sweep_external();
  }
  if (shortfall(size) > Bytes(0)) {
    make_room_for_charge(size);
  }
  charges_.external += size;
  stats_.peak_bytes = std::max(stats_.peak_bytes, charged().count());
  if (footprint_.start(pool_.capacity())) {
    fit_footprint();
  }
}

StorageId Engine::add_external(void* handle, Bytes nbytes, Charge charge) {
  const Bytes size = pool_.round_up(nbytes);
  if (charge == Charge::kNow) {
    charge_external(size);
  }
  const auto [storage, added] = storages_.emplace();
  const auto [id, value] = lineage_.emplace_value();
  value.size = size;
  value.nbytes = nbytes;
  value.storage = storage;
  value.external = handle;
  value.among_outside = charge == Charge::kAmongOutside;
  value.last_access = now_;
  added = {.current = id, .handle = handle, .birth = next_birth_++};
  if (observer_ != nullptr) {
    observer_->on_external(storage, nbytes);
  }
  return storage;
}

StorageId Engine::revive_external(ValueId id) {
  Value& value = lineage_[id];
  RECOUP_CHECK(value.external != nullptr && !value.storage.valid());
  const auto [storage, added] = storages_.emplace();
  added = {.current = id, .handle = value.external, .birth = next_birth_++};
  value.storage = storage;
  if (observer_ != nullptr) {
    observer_->on_external(storage, value.nbytes);
  }
  return storage;
}

// The new content of `storage` after `op` wrote it; no op: a leaf.
void Engine::supersede(StorageId id, OpId op, bool overwritten) {
  HeldStorage& storage = storages_[id];
  const ValueId before = storage.current;
  if (!op.valid() && lineage_[before].leaf() && !lineage_.has_consumers(before)) {
    lineage_[before].writing = false;
    touch(before);
    discard_copy(storage);
    return;
  }
  const BlockId copy = std::exchange(storage.before_write, BlockId());
  const ValueId after = values_.pass_on(id);
  if (op.valid()) {
    lineage_.add_written(op, {.before = overwritten ? ValueId() : before,
                              .after = after,
                              .nbytes = lineage_[after].nbytes});
    Value& now = lineage_[after];
    const Value& old = lineage_[before];
    now.from_nothing = overwritten ? lineage_[op].inputs.empty() : old.from_nothing;
    const bool alone = !overwritten && lineage_[op].inputs.size() == 1;  // itself
    now.was_read = alone && old.was_read;
    now.changed = !overwritten && (old.changed || (old.was_read && !alone));
  }
  candidates_.update(after);
  if (copy.valid()) {
    values_.give_copy(before, copy);
  }
  const bool was_leaf = lineage_[before].leaf();
  if (copy.valid() && !was_leaf) {
    candidates_.update(before);
  } else {
    values_.transition(before, was_leaf ? Residency::kLost : Residency::kEvicted);
  }
  values_.settle(before);
}

bool Engine::recordable(const OpRecord& record) const {
  const bool large =
      std::any_of(
          record.fresh.begin(), record.fresh.end(),
          [this](const FreshStorage& fresh) { return fresh.nbytes > options_.small_leaf; }) ||
      std::any_of(record.written.begin(), record.written.end(), [this](const WrittenStorage& each) {
        return lineage_[current(each.storage)].nbytes > options_.small_leaf;
      });
  if (!large) {
    return false;
  }
  std::int32_t depth = 0;
  for (ValueId input : record.inputs) {
    const Value& value = lineage_[input];
    if (value.escaped) {
      return false;
    }
    if (!value.leaf()) {
      depth = std::max(depth, lineage_[value.producer].depth + 1);
    }
  }
  if (depth > options_.max_depth) {
    return false;
  }
  for (const WrittenStorage& written : record.written) {
    const Value& value = lineage_[storages_[written.storage].current];
    if (value.external != nullptr || value.escaped || (value.leaf() && !written.overwritten)) {
      return false;
    }
  }
  return true;
}

void Engine::record_leaves(const OpRecord& record, std::span<StorageId> storages) {
  if (record.payload != nullptr) {
    device_.release(record.payload);
  }
  for (const WrittenStorage& written : record.written) {
    supersede(written.storage, OpId(), written.overwritten);
  }
  for (std::size_t i = 0; i < record.fresh.size(); ++i) {
    storages[i] = add_storage(record.fresh[i]);
  }
}

void Engine::record_op(const OpRecord& record, std::span<StorageId> storages) {
  const bool verifiable = verifier_.defined(record);
  std::size_t result = 0;
  const OpId id = lineage_.add_op(record.inputs);
  Op& op = lineage_[id];
  op.payload = record.payload;
  op.workspace = record.workspace;
  charges_.device_books += static_cast<std::ptrdiff_t>(device_.payload_bytes(record.payload));
  lineage_.set_cost(id, record.cost);
  stats_.lineage_depth_max = std::max(stats_.lineage_depth_max, std::int64_t{op.depth});
  for (const WrittenStorage& written : record.written) {
    supersede(written.storage, id, written.overwritten);
    if (verifiable) {
      const ValueId value = storages_[written.storage].current;
      verifier_.remember(value, values_.location(value), record, result);
    }
    ++result;
  }
  for (std::size_t i = 0; i < record.fresh.size(); ++i, ++result) {
    storages[i] = add_storage(record.fresh[i]);
    const ValueId value = storages_[storages[i]].current;
    if (record.fresh[i].nbytes > options_.small_leaf) {
      lineage_[value].from_nothing = record.inputs.empty();
      lineage_.add_output(id, value);
      candidates_.update(value);
      if (verifiable) {
        verifier_.remember(value, values_.location(value), record, result);
      }
    } else {
      lineage_.add_output(id, ValueId());
      lineage_[id].forgotten += pool_.round_up(record.fresh[i].nbytes);
    }
  }
  bound_books();
}

void Engine::finish(const OpRecord& record, std::span<StorageId> storages) {
  ++stats_.op_count;
  stats_.op_ns += record.cost.count();
  stats_.workspace_bytes = record.workspace.count();
  for (ValueId input : record.inputs) {
    touch(input);
  }
  now_ += record.cost.count();
  if (record.payload != nullptr && (record.recordable || recordable(record))) {
    record_op(record, storages);
  } else {
    record_leaves(record, storages);
  }
}

void Engine::fail(std::span<const WrittenStorage> written) {
  for (const WrittenStorage& each : written) {
    // One that was evicted before the op could be tried again can be replayed as it was.
    if (lineage_[current(each.storage)].resident()) {
      supersede(each.storage, OpId(), each.overwritten);
    }
  }
}

// When the books grow past their bound, resident values that the user holds become leaves, the
// smallest first: that costs nothing now, and lets the lineage behind them go.
void Engine::bound_books() {
  const auto books = static_cast<std::ptrdiff_t>(lineage_.op_count() * sizeof(Op) +
                                                 lineage_.value_count() * sizeof(Value)) +
                     charges_.device_books;
  stats_.books_peak_bytes = std::max(stats_.books_peak_bytes, std::int64_t{books});
  if (books <= books_bound_) {
    return;
  }
  std::vector<std::pair<Bytes, ValueId>> held;
  lineage_.for_each_value([&](ValueId id, const Value& value) {
    if (value.storage.valid() && value.resident() && !value.leaf() && !value.writing &&
        lineage_[value.producer].depth > 0) {
      held.emplace_back(value.size, id);
    }
  });
  std::sort(held.begin(), held.end());
  const std::size_t target = lineage_.op_count() / 2;
  for (const auto& [size, id] : held) {
    if (lineage_.op_count() <= target) {
      break;
    }
    if (lineage_.contains(id)) {
      lineage_[id].frozen = true;
      values_.make_leaf(id);
      values_.drain();
    }
  }
  books_bound_ = std::max(books_bound_, books);
}

}  // namespace recoup::detail
