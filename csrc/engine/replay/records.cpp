#include "csrc/engine/replay/records.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace recoup::detail {

Records::Records(Context& context, const Parts& parts)
    : context_(context),
      lineage_(context.lineage),
      values_(parts.values),
      candidates_(parts.candidates),
      verifier_(parts.verifier),
      mover_(parts.mover),
      room_(parts.room),
      enough_(parts.enough),
      metadata_bound_(
          std::max<std::ptrdiff_t>(std::ptrdiff_t{16} << 20, context.budget.count() / 100)) {}

void Records::copy_before_write(std::span<const StorageId> storages) {
  for (StorageId id : storages) {
    const Value& value = lineage_[values_.current(id)];
    if (!value.block.valid() || value.escaped || value.fixed != 1) {
      continue;
    }
    enough_.allocate(value.size);
    Values::KernelBlock fresh = room_.take_block(value.size);
    values_[id].before_write = mover_.relocate(id, fresh.id());
    if (values_[id].before_write.valid()) {
      fresh.release();  // the storage owns it, and the old block is charged in its place
    }
  }
}

void Records::discard_copies(std::span<const StorageId> storages) noexcept {
  for (StorageId id : storages) {
    values_.take_copy(values_[id]).reset();
  }
}

Nanoseconds Records::cost_by_bytes(const OpRecord& record) const {
  Nanoseconds cost(1 + record.made().count());
  for (ValueId input : record.inputs) {
    cost += Nanoseconds(lineage_[input].size.count());
  }
  return cost;
}

// Updates the storage after `op` wrote it. Invalid op: the new content is non-recomputable, because
// of `why`.
void Records::supersede(StorageId id, OpId op, bool overwritten, NoReplay why) {
  values_.stop_copying(values_.current(id));
  HeldStorage& storage = values_[id];
  const ValueId before = storage.current;
  if (const NoReplay first = lineage_[before].flags.why;
      why == NoReplay::kOldContent && first != NoReplay::kNone) {
    why = first;
  }
  if (!op.valid() && !lineage_[before].recomputable() && !lineage_.has_consumers(before)) {
    lineage_[before].writing = false;
    lineage_[before].flags.why = why;
    values_.made(before);
    values_.drop_copy(before);
    touch(before);
    values_.take_copy(storage).reset();
    return;
  }
  Values::KernelBlock copy = values_.take_copy(storage);
  const ValueId after = values_.add_version(id);
  if (op.valid()) {
    lineage_.add_written(op, {.before = overwritten ? ValueId() : before,
                              .after = after,
                              .nbytes = lineage_[after].nbytes});
    Value& now = lineage_[after];
    const Value& old = lineage_[before];
    now.flags.from_nothing = overwritten ? lineage_[op].inputs.empty() : old.flags.from_nothing;
    const bool alone = !overwritten && lineage_[op].inputs.size() == 1;  // reads only itself
    now.flags.was_read = alone && old.flags.was_read;
    now.flags.changed = !overwritten && (old.flags.changed || (old.flags.was_read && !alone));
  } else {
    lineage_[after].flags.why = why;
  }
  candidates_.update_cost(after);
  const bool copied = static_cast<bool>(copy);
  if (copied) {
    values_.give_copy(before, std::move(copy));
  }
  const bool was_source = !lineage_[before].recomputable();
  if (copied && !was_source) {
    candidates_.update(before);
  } else if (lineage_[before].slot.valid() && lineage_.has_consumers(before)) {
    values_.transition(before, Residency::kSpilled);
  } else {
    values_.transition(before, was_source ? Residency::kLost : Residency::kEvicted);
  }
  values_.collect(before);
}

NoReplay Records::why_unrecorded(const OpRecord& record) const {
  const bool large =
      std::any_of(record.fresh.begin(), record.fresh.end(),
                  [this](const FreshStorage& fresh) {
                    return fresh.nbytes > context_.options.small_result_bytes;
                  }) ||
      std::any_of(record.written.begin(), record.written.end(), [this](const WrittenStorage& each) {
        return lineage_[values_.current(each.storage)].nbytes > context_.options.small_result_bytes;
      });
  if (!large) {
    return NoReplay::kSmall;
  }
  std::int32_t depth = 0;
  for (ValueId input : record.inputs) {
    const Value& value = lineage_[input];
    if (value.escaped) {
      return NoReplay::kOfEscaped;
    }
    if (value.recomputable()) {
      depth = std::max(depth, lineage_[value.producer].depth + 1);
    }
  }
  if (depth > context_.options.max_depth) {
    return NoReplay::kDepth;
  }
  for (const WrittenStorage& written : record.written) {
    const Value& value = lineage_[values_[written.storage].current];
    if (value.external != nullptr || value.escaped ||
        (!value.recomputable() && !written.overwritten)) {
      return NoReplay::kOldContent;
    }
  }
  return NoReplay::kNone;
}

void Records::record_non_recomputables(const OpRecord& record, std::span<StorageId> storages,
                                       NoReplay why) {
  if (record.payload != nullptr) {
    context_.device.release(record.payload);
  }
  for (const WrittenStorage& written : record.written) {
    supersede(written.storage, OpId(), written.overwritten, why);
  }
  for (std::size_t i = 0; i < record.fresh.size(); ++i) {
    const FreshStorage& fresh = record.fresh[i];
    if (fresh.overflow == OverflowKey::kNone) {
      storages[i] = values_.add_storage(fresh);
    } else {
      storages[i] =
          values_.add_external(fresh.handle, {.nbytes = fresh.nbytes, .among_outside = true});
      context_.segments.place(fresh.handle, SegmentId());
    }
    lineage_[values_.current(storages[i])].flags.why = why;
  }
}

void Records::record_op(const OpRecord& record, std::span<StorageId> storages) {
  const bool verifiable = verifier_.defined(record);
  std::size_t result = 0;
  const OpId id = lineage_.add_op(record.inputs);
  for (const ValueId input : record.inputs) {
    if (lineage_[input].external != nullptr) {
      context_.device.keep(lineage_[input].external);
    }
  }
  Op& op = lineage_[id];
  op.payload = record.payload;
  if (context_.makers != nullptr) {
    context_.makers->ran(id);
  }
  op.workspace = record.workspace;
  context_.charges.device_metadata +=
      static_cast<std::ptrdiff_t>(context_.device.payload_bytes(record.payload));
  lineage_.set_cost(id, record.cost);
  context_.stats.lineage_depth_max =
      std::max(context_.stats.lineage_depth_max, std::int64_t{op.depth});
  for (const WrittenStorage& written : record.written) {
    supersede(written.storage, id, written.overwritten, NoReplay::kNone);
    if (verifiable) {
      const ValueId value = values_[written.storage].current;
      verifier_.remember(value, values_.location(value), record, result);
    }
    ++result;
  }
  for (std::size_t i = 0; i < record.fresh.size(); ++i, ++result) {
    storages[i] = values_.add_storage(record.fresh[i]);
    const ValueId value = values_[storages[i]].current;
    if (record.fresh[i].nbytes > context_.options.small_result_bytes) {
      lineage_[value].flags.from_nothing = record.inputs.empty();
      lineage_.add_output(id, value);
      candidates_.update_cost(value);
      if (verifiable) {
        verifier_.remember(value, values_.location(value), record, result);
      }
    } else {
      lineage_.add_output(id, ValueId());
      lineage_[id].forgotten += context_.pool.round_up(record.fresh[i].nbytes);
    }
  }
  bound_metadata();
}

void Records::finish(const OpRecord& record, std::span<StorageId> storages) {
  ++context_.stats.op_count;
  context_.stats.op_ns += record.cost.count();
  context_.stats.workspace_bytes = record.workspace.count();
  for (ValueId input : record.inputs) {
    touch(input);
  }
  context_.now += record.cost.count();
  const bool judged = record.recordable || record.why != NoReplay::kNone;
  const NoReplay why = judged ? record.why : why_unrecorded(record);
  if (record.payload != nullptr && why == NoReplay::kNone) {
    record_op(record, storages);
  } else {
    record_non_recomputables(record, storages, why);
  }
}

void Records::make_unknown(std::span<const WrittenStorage> written) {
  for (const WrittenStorage& each : written) {
    // A value that was evicted before the op could be tried again can still be replayed.
    if (lineage_[values_.current(each.storage)].resident()) {
      supersede(each.storage, OpId(), each.overwritten, NoReplay::kFailedOp);
    }
  }
}

// If the metadata exceed their bound, resident values that the user holds become non-recomputable,
// the smallest first. That costs nothing now, and frees the lineage of their ancestors.
void Records::bound_metadata() {
  const auto metadata = static_cast<std::ptrdiff_t>(lineage_.op_count() * sizeof(Op) +
                                                    lineage_.value_count() * sizeof(Value)) +
                        context_.charges.device_metadata;
  context_.stats.metadata_peak_bytes =
      std::max(context_.stats.metadata_peak_bytes, std::int64_t{metadata});
  if (metadata <= metadata_bound_) {
    return;
  }
  std::vector<std::pair<Bytes, ValueId>> held;
  lineage_.for_each_value([&](ValueId id, const Value& value) {
    if (value.storage.valid() && value.resident() && value.recomputable() && !value.writing &&
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
      lineage_[id].flags.frozen = true;
      values_.make_non_recomputable(id, NoReplay::kMetadata);
      values_.drain();
    }
  }
  // If little can be cut, each op would look again at all values.
  const bool cut = lineage_.op_count() <= target;
  metadata_bound_ = std::max(metadata_bound_, cut ? metadata : metadata + metadata / 2);
}

}  // namespace recoup::detail
