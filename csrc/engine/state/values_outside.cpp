// Values whose bytes are outside the pool: how they are added, brought in and moved out.
#include <utility>

#include "csrc/base/check.h"
#include "csrc/engine/state/values.h"

namespace recoup::detail {

StorageId Values::add_external(void* handle, const OutsideStorage& outside) {
  const auto [storage, added] = storages_.emplace();
  const auto [id, value] = lineage_.emplace_value();
  value.size = pool_.round_up(outside.nbytes);
  value.nbytes = outside.nbytes;
  value.storage = storage;
  value.external = handle;
  value.flags.among_outside = outside.among_outside;
  value.last_access = context_.now;
  if (context_.makers != nullptr) {
    context_.makers->came(id);
  }
  added = {.current = id, .handle = handle, .birth = next_birth_++};
  added.window = outside.window;
  return storage;
}

void Values::leave_outside(ValueId id) {
  Value& value = lineage_[id];
  const bool charged = !std::exchange(value.flags.among_outside, false);
  context_.charge_outside(charged ? -value.size : Bytes(0));
  value.spillable = tier_takes(value);
  void* const record = std::exchange(value.external, nullptr);
  if (value.storage.valid()) {
    charges_.plain += value.size;
    device_.take_over(record);
  } else {
    device_.forget_released(record);
  }
}

void Values::bring_in(ValueId id, BlockId block) {
  leave_outside(id);
  Value& value = lineage_[id];
  value.block = block;
  pool_.set_owner(block, id);
  if (value.storage.valid()) {
    device_.attach(storages_[value.storage].handle, pool_.offset(block));
  }
  count_dead_source(id);
  candidates_.update(id);
}

bool Values::move_out(ValueId id) {
  Value& value = lineage_[id];
  RECOUP_CHECK(value.block.valid() && value.storage.valid() && !value.slot.valid() &&
               !lineage_.has_consumers(id));
  HeldStorage& storage = storages_[value.storage];
  if (!device_.move_out(storage.handle, pool_.offset(value.block), value.nbytes)) {
    return false;
  }
  free_bytes(std::exchange(value.block, BlockId()));
  value.external = storage.handle;
  value.spillable = false;
  storage.left = true;
  charges_.plain -= value.size;
  context_.charge_outside(value.size);
  set_immovable(storage, false);
  candidates_.update(id);
  return true;
}

StorageId Values::revive_external(ValueId id) {
  Value& value = lineage_[id];
  RECOUP_CHECK(value.external != nullptr && !value.storage.valid());
  const auto [storage, added] = storages_.emplace();
  added = {.current = id, .handle = value.external, .birth = next_birth_++};
  value.storage = storage;
  return storage;
}

}  // namespace recoup::detail
