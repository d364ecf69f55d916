#include "csrc/engine/state/recount.h"

#include "csrc/base/check.h"

namespace recoup::detail {

Recount::Recount(const Context& context, const HeldStorages& storages)
    : pool_(context.pool),
      lineage_(context.lineage),
      tier_(context.tier),
      charges_(context.charges),
      outside_(context.outside),
      storages_(storages) {}

void Recount::check_value(ValueId id, const Value& value, bool at_rest) const {
  RECOUP_CHECK((value.resident() && value.external == nullptr) == value.block.valid(), "value ",
               id.index());
  RECOUP_CHECK(!value.spilled() || value.slot.valid(), "value ", id.index());
  RECOUP_CHECK(!value.slot.valid() || value.has_content(), "value ", id.index());
  if (value.block.valid()) {
    const BlockView block = pool_.view(value.block);
    RECOUP_CHECK(block.owner == id && block.size == value.size && !block.free);
  }
  RECOUP_CHECK(!value.storage.valid() || storages_[value.storage].current == id);
  RECOUP_CHECK(value.hard_pins >= value.fixed && value.fixed >= 0 && value.soft_pins >= 0);
  const int user_pins = value.storage.valid() ? storages_[value.storage].user_pins : 0;
  const int by_copy = value.copying ? 1 : 0;
  RECOUP_CHECK(
      !at_rest || (value.hard_pins == user_pins + by_copy && value.soft_pins == 0 &&
                   value.fixed == user_pins + (value.resident() ? by_copy : 0) && !value.writing),
      "value ", id.index(), " is still pinned: ", value.hard_pins, " hard, ", value.soft_pins,
      " soft, ", value.fixed, " in place; ", user_pins, " by the user",
      value.writing ? "; written" : "");
  RECOUP_CHECK(value.held() || lineage_.has_consumers(id), "value ", id.index(),
               " is kept without a holder or a consumer");
}

void Recount::check(bool at_rest) const {
  Charges counted;
  Bytes owned{0};
  std::size_t owned_blocks = 0;
  Bytes slots{0};
  storages_.for_each([&](StorageId, const HeldStorage& storage) {
    counted.immovable_blocks += static_cast<int>(storage.immovable);
  });
  lineage_.for_each_value([&](ValueId id, const Value& value) {
    check_value(id, value, at_rest);
    slots += value.slot.valid() ? tier_.size(value.slot) : Bytes(0);
    counted.spilled += value.spilled() ? value.size : Bytes(0);
    if (value.block.valid()) {
      owned += value.size;
      ++owned_blocks;
      const bool dead_source = !value.recomputable() && !value.storage.valid();
      counted.dead_sources += dead_source ? value.size : Bytes(0);
      counted.dead_frozen += dead_source && value.flags.frozen ? value.size : Bytes(0);
    }
    if (value.external == nullptr) {
      counted.plain += value.storage.valid() ? value.size : Bytes(0);
    } else if (!value.flags.among_outside) {
      counted.external += value.size;
    }
  });
  RECOUP_CHECK(counted.plain == charges_.plain && counted.dead_sources == charges_.dead_sources &&
               counted.dead_frozen == charges_.dead_frozen &&
               counted.immovable_blocks == charges_.immovable_blocks);
  RECOUP_CHECK(counted.external + outside_ == charges_.external);
  RECOUP_CHECK(owned_blocks +
                   static_cast<std::size_t>(charges_.kernel_blocks + charges_.ahead_blocks) ==
               pool_.taken_blocks());
  RECOUP_CHECK(owned + charges_.kernel_held + charges_.ahead == pool_.used(), owned.count(), " + ",
               charges_.kernel_held.count(), " + ", charges_.ahead.count(),
               " != ", pool_.used().count());
  RECOUP_CHECK(slots == tier_.used() && counted.spilled == charges_.spilled);
}

}  // namespace recoup::detail
