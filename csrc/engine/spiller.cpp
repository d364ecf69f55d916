#include "csrc/engine/spiller.h"

#include <utility>

#include "csrc/base/check.h"
#include "csrc/engine/device.h"
#include "csrc/engine/timer.h"

namespace recoup::detail {
Spiller::Spiller(Context& context, Values& values)
    : context_(context), lineage_(context.lineage), values_(values), tier_(context.tier) {}

std::optional<Nanoseconds> Spiller::price_of(const Value& value) const {
  if (!value.spillable || !tier_.has_room(value.size)) {
    return std::nullopt;
  }
  return tier_.write_cost(value.size) + tier_.read_cost(value.size);
}

bool Spiller::spill(ValueId id) {
  RECOUP_CHECK(lineage_[id].evictable());
  const std::optional<BlockId> slot =
      lineage_[id].spillable ? tier_.take(lineage_[id].size, lineage_[id].leaf()) : std::nullopt;
  if (!slot || !write(id, *slot)) {
    values_.set_spillable(id, false);
    refused_.push_back(id);
    return false;
  }
  const Value& value = lineage_[id];
  if (value.storage.valid() &&
      !context_.device.detach(values_[value.storage].handle, context_.pool.offset(value.block))) {
    tier_.give_back(*slot);
    values_.forsake(id);
    return false;
  }
  keep(id, *slot);
  return true;
}

bool Spiller::spill_outside(ValueId id) {
  const std::optional<BlockId> slot = tier_.take(lineage_[id].size, /*leaf=*/true);
  if (!slot || !write(id, *slot)) {
    return false;
  }
  values_.leave_outside(id);
  keep(id, *slot);
  return true;
}

// The slot has all that it holds, and its storage has no bytes any more.
void Spiller::keep(ValueId id, BlockId slot) {
  Value& value = lineage_[id];
  value.slot = slot;
  ++context_.stats.spills;
  context_.stats.spilled_bytes += value.size.count();
  context_.stats.spill_cost_ns += tier_.write_cost(value.size).count();
  context_.stats.spill_peak_bytes = tier_.peak().count();
  if (context_.observer != nullptr) {
    context_.observer->on_spill(id);
  }
  values_.transition(id, Residency::kSpilled);
  values_.drain();
}

// A tier that fails once is not asked again.
bool Spiller::write(ValueId id, BlockId slot) {
  const Timer timer(context_.stats.spill_ns);
  const Value& value = lineage_[id];
  const Bytes size = value.external != nullptr ? value.nbytes : value.size;
  if (context_.device.spill(tier_.offset(slot), values_.location(id), size)) {
    return true;
  }
  tier_.give_back(slot);
  close();
  return false;
}

void Spiller::close() {
  tier_.close();
  std::vector<ValueId> all;
  lineage_.for_each_value([&](ValueId id, const Value&) { all.push_back(id); });
  for (ValueId id : all) {
    values_.set_spillable(id, false);
  }
}

void Spiller::take_refused() {
  for (ValueId id : std::exchange(refused_, {})) {
    if (lineage_.contains(id) && lineage_[id].block.valid() && tier_.takes(lineage_[id].nbytes)) {
      values_.set_spillable(id, true);
    }
  }
}

void Spiller::fetch(ValueId id, BlockId block) {
  const Timer timer(context_.stats.fetch_ns);
  const Value& value = lineage_[id];
  RECOUP_CHECK(value.spilled() && context_.pool.size(block) == value.size);
  context_.device.fetch(context_.pool.offset(block), tier_.offset(value.slot), value.size);
  ++context_.stats.fetches;
  context_.stats.fetched_bytes += value.size.count();
  context_.stats.spill_cost_ns += tier_.read_cost(value.size).count();
  if (context_.observer != nullptr) {
    context_.observer->on_fetch(id);
  }
  context_.charges.remove_kernel_block(value.size);
  values_.transition(id, Residency::kResident, block);
  lineage_[id].last_access = context_.now;
  values_.count_dead_leaf(id);
}

}  // namespace recoup::detail
