#include "csrc/engine/tier/spiller.h"

#include <algorithm>
#include <utility>

#include "csrc/base/check.h"
#include "csrc/engine/base/device.h"
#include "csrc/engine/base/tier_store.h"

namespace recoup::detail {
Spiller::Spiller(Context& context, Values& values, AsyncCopies& copies)
    : context_(context),
      lineage_(context.lineage),
      values_(values),
      copies_(copies),
      tier_(context.tier) {}

std::optional<Nanoseconds> Spiller::price_of(const Value& value) const {
  if (!value.clean() && (!value.spillable || !has_room(value.size))) {
    return std::nullopt;
  }
  const Nanoseconds time = tier_.absence_cost(value.size, value.clean());
  const double share = context_.forecast == nullptr ? 1.0 : context_.forecast->waited_part();
  return Nanoseconds(static_cast<std::int64_t>(share * static_cast<double>(time.count())));
}

bool Spiller::spill(ValueId id) {
  RECOUP_CHECK(lineage_[id].evictable());
  if (!copy(id)) {
    if (!lineage_.contains(id)) {
      return true;  // see take_slot
    }
    values_.set_spillable(id, false);
    refused_.push_back(id);
    return false;
  }
  const Value& value = lineage_[id];
  if (value.storage.valid() &&
      !context_.device.detach(values_[value.storage].handle, context_.pool.offset(value.block))) {
    values_.disown(id);
    return false;
  }
  keep(id);
  return true;
}

void Spiller::leave_outside(OutsideCopy copy) {
  const ValueId id = copy.release();
  values_.leave_outside(id);
  keep(id);
}

bool Spiller::begin_write(ValueId id) {
  Tier::Slot slot = take_slot(id);
  const bool taken = static_cast<bool>(slot);
  if (taken) {
    copies_.begin_write(id, std::move(slot));
  }
  return taken;
}

bool Spiller::save(ValueId id) {
  return lineage_[id].block.valid() && !lineage_[id].copying && copy(id);
}

// Ensures that the tier has the bytes of a value of the pool. An earlier copy is compared first: a
// kernel may have written storages that it did not declare.
bool Spiller::copy(ValueId id) {
  const Value& value = lineage_[id];
  if (value.clean()) {
    const void* const bytes = context_.device.address(values_.location(id));
    if (context_.device.tier()->holds(tier_.offset(value.slot), bytes, value.nbytes)) {
      ++context_.stats.clean_spills;
      return true;
    }
    values_.drop_copy(id);
  }
  return value.spillable && write(id);
}

bool Spiller::write(ValueId id) {
  Tier::Slot slot = take_slot(id);
  if (!slot || !copies_.write(id, slot.id())) {
    return false;
  }
  lineage_[id].slot = slot.release();
  return true;
}

bool Spiller::has_room(Bytes nbytes) const {
  return tier_.open() &&
         (tier_.has_room(nbytes) || tier_.used() - context_.charges.spilled >= nbytes);
}

// If the tier is full, copies of resident values are freed: they are worth less. A value that only
// its copy held ends with it, and with it may end what it was computed from: this value.
Tier::Slot Spiller::take_slot(ValueId id) {
  if (!tier_.open()) {
    return {};
  }
  const Bytes nbytes = lineage_[id].size;
  const bool source = !lineage_[id].recomputable();
  if (!tier_.has_room(nbytes) && tier_.used() > context_.charges.spilled) {
    drop_copies(nbytes);
    if (!tier_.has_room(nbytes) && copies_.wait_for_all()) {
      if (!lineage_.contains(id)) {
        return {};
      }
      drop_copies(nbytes);
    }
  }
  return tier_.open() ? tier_.take(nbytes, source) : Tier::Slot();
}

void Spiller::drop_all_copies() {
  copies_.wait_for_all();
  for (const ValueId id : clean_values()) {
    values_.drop_copy(id);
  }
}

// Values outside of the pool are left out: they are about to be spilled from their copies.
std::vector<ValueId> Spiller::clean_values() const {
  std::vector<ValueId> clean;
  lineage_.for_each_value([&](ValueId id, const Value& value) {
    if (value.clean() && value.external == nullptr) {
      clean.push_back(id);
    }
  });
  return clean;
}

// Frees copies of resident values, least recently used first, until `needed` bytes fit. A value
// that is being overwritten keeps its copy, because dependents may need the old content.
void Spiller::drop_copies(Bytes needed) {
  std::vector<ValueId> clean = clean_values();
  std::erase_if(clean, [this](ValueId id) { return lineage_[id].writing; });
  std::stable_sort(clean.begin(), clean.end(), [this](ValueId a, ValueId b) {
    return lineage_[a].last_access < lineage_[b].last_access;
  });
  for (const ValueId id : clean) {
    if (tier_.has_room(needed)) {
      break;
    }
    values_.drop_copy(id);
  }
}

// Makes a value spilled whose slot has its content and whose storage has no bytes any more.
void Spiller::keep(ValueId id) {
  context_.stats.spill_peak_bytes = tier_.peak().count();
  if (context_.observer != nullptr) {
    context_.observer->on_spill(id);
  }
  values_.transition(id, Residency::kSpilled);
  values_.drain();
}

void Spiller::take_refused() {
  for (ValueId id : std::exchange(refused_, {})) {
    if (lineage_.contains(id) && lineage_[id].block.valid() && tier_.takes(lineage_[id].nbytes)) {
      values_.set_spillable(id, true);
    }
  }
}

}  // namespace recoup::detail
