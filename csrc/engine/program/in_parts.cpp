#include "csrc/engine/program/in_parts.h"

#include <algorithm>

#include "csrc/base/at_end.h"
#include "csrc/engine/base/device.h"
#include "csrc/pool/compactor.h"

namespace recoup::detail {

InParts::InParts(Context& context, const Sources& sources)
    : context_(context),
      lineage_(context.lineage),
      values_(sources.values),
      freezer_(sources.freezer),
      replayer_(sources.replayer),
      importer_(sources.importer),
      spiller_(sources.spiller),
      reporter_(sources.reporter),
      room_(sources.room) {}

// Dead external storages are swept before observers receive the parts: in a trace they die
// there, so a simulation counts the same bytes.
bool InParts::begin(std::span<const Part> parts) {
  if (context_.charges.external > Bytes(0)) {
    context_.device.sweep_external();
  }
  if (context_.observer != nullptr) {
    context_.observer->on_parts_begin(context_.running_op, parts);
  }
  AtEnd ended([this] { end(); });
  active_ = prepare(parts);
  if (active_) {
    ended.cancel();
  }
  return active_;
}

// Copy on write (in_place) and segments exist only for comparisons, and are not supported here.
bool InParts::prepare(std::span<const Part> parts) {
  if (context_.options.in_place != InPlace::kShare || context_.options.block_size > Bytes(0)) {
    return false;
  }
  for (const Part& part : parts) {
    for (const PartOperand& operand : part.operands) {
      if (operand.written) {
        detach(operand.storage);
      }
    }
  }
  if (is_there(parts)) {
    return true;
  }
  Need need = look(parts);
  if (const Bytes missing = need.most + need.stays + need.perhaps - context_.budget;
      missing > Bytes(0)) {
    room_.take_more(missing);
    need = look(parts);
  }
  if (!need.sure && context_.charges.external > Bytes(0)) {
    let_go();
    importer_.bring_in();
    need = look(parts);
  }
  if (!need.sure) {
    let_go();
  }
  if (const Bytes missing = need.operands + need.stays - context_.budget; missing > Bytes(0)) {
    if (room_.wait_for_more(missing)) {
      return look(parts).sure;
    }
    reporter_.fail(need.operands, "one slice of the lists of this op needs this much");
  }
  return need.sure;
}

void InParts::detach(StorageId storage) {
  const ValueId id = values_.current(storage);
  if (lineage_[id].recomputable()) {
    const Values::Hold held = lineage_[id].evicted() ? replayer_.hold(id) : Values::Hold();
    values_.make_non_recomputable(id, NoReplay::kInParts);
    values_.drain();
  }
  freezer_.before_write(storage, Freezer::OldVersion::kResident);
}

// Whether no part replays anything for this operand.
bool InParts::is_detached(const PartOperand& operand) const {
  const ValueId id = values_.current(operand.storage);
  return !lineage_[id].recomputable() && !(operand.written && lineage_.has_consumers(id));
}

// Whether all operands are resident and detached, so that no part allocates anything.
bool InParts::is_there(std::span<const Part> parts) const {
  return std::all_of(parts.begin(), parts.end(), [this](const Part& part) {
    return part.workspace == Bytes(0) &&
           std::all_of(part.operands.begin(), part.operands.end(), [this](const PartOperand& each) {
             return is_detached(each) && lineage_[values_.current(each.storage)].resident();
           });
  });
}

bool InParts::hold_slot(ValueId id) {
  if (id.index() >= has_slot_.size()) {
    has_slot_.resize(id.index() + std::size_t{1});
  }
  if (!has_slot_[id.index()]) {
    has_slot_[id.index()] = context_.tier.hold(lineage_[id].size);
  }
  return has_slot_[id.index()];
}

// Holds slots for operands of the parts first, and then for other values.
void InParts::hold_slots(std::span<const Part> parts) {
  has_slot_.clear();
  if (!context_.tier.open()) {
    return;
  }
  spiller_.drop_all_copies();
  context_.tier.hold_slots();
  // Resets the flag: else reconsider() would retry what is refused here.
  (void)context_.tier.gave_back();
  std::vector<ValueId> refused;
  const auto wants = [](const Value& value) { return !value.recomputable() && value.evictable(); };
  for (const Part& part : parts) {
    for (const PartOperand& operand : part.operands) {
      const ValueId id = values_.current(operand.storage);
      if (wants(lineage_[id]) && !hold_slot(id)) {
        refused.push_back(id);
      }
    }
  }
  lineage_.for_each_value([&](ValueId id, const Value& value) {
    if (wants(value) && !hold_slot(id)) {
      refused.push_back(id);
    }
  });
  for (const ValueId id : refused) {
    values_.set_spillable(id, false);
  }
}

void InParts::end() {
  active_ = false;
  if (context_.observer != nullptr) {
    context_.observer->on_parts_end();
  }
  let_go();
}

// Values that got no slot may be spilled again, as far as there is room.
void InParts::let_go() {
  context_.tier.let_go();
  if (has_slot_.empty()) {
    return;
  }
  has_slot_.clear();
  std::vector<ValueId> refused;
  lineage_.for_each_value([&](ValueId id, const Value& value) {
    if (value.block.valid() && !value.spillable && context_.tier.takes(value.nbytes)) {
      refused.push_back(id);
    }
  });
  for (const ValueId id : refused) {
    values_.set_spillable(id, true);
  }
}

// Whether its bytes in the pool can be freed on demand.
bool InParts::may_go(ValueId id) const {
  const Value& value = lineage_[id];
  return value.evictable() &&
         (value.recomputable() || (id.index() < has_slot_.size() && has_slot_[id.index()]));
}

// Size of the part's operands that have no bytes, or whose bytes may be freed.
Bytes InParts::operands_of(const Part& part) const {
  Bytes sum{0};
  for (const PartOperand& operand : part.operands) {
    const ValueId id = values_.current(operand.storage);
    const Value& value = lineage_[id];
    const bool there = value.external != nullptr || (value.block.valid() && !may_go(id));
    sum += there ? Bytes(0) : value.size;
  }
  return sum;
}

// The n operands of a kernel stay in place, so they cut the pool into at most n + 1 free ranges.
// Each of these may have to be large enough for the workspace.
Bytes InParts::workspace_of(const Part& part) const {
  const Bytes workspace = context_.pool.round_up(part.workspace);
  return Bytes(workspace.count() * (static_cast<std::int64_t>(part.operands.size()) + 1));
}

InParts::Need InParts::look(std::span<const Part> parts) {
  let_go();  // of what an earlier look holds
  hold_slots(parts);
  bool known = true;
  const Charges& charges = context_.charges;
  Need need;
  for (const Part& part : parts) {
    const Bytes operands = operands_of(part);
    need.operands = std::max(need.operands, operands);
    need.most = std::max(need.most, operands + workspace_of(part));
    known &= std::all_of(part.operands.begin(), part.operands.end(),
                         [this](const PartOperand& each) { return is_detached(each); });
  }
  Bytes in_pool{0};
  lineage_.for_each_value([&](ValueId id, const Value& value) {
    if (value.block.valid() && !may_go(id)) {
      const bool dead_source = !value.recomputable() && !value.held();
      (dead_source || value.evictable() ? need.perhaps : need.stays) += value.size;
      in_pool += value.size;
    }
  });
  need.stays += charges.external + charges.kernel_held;
  need.sure = known && need.most + need.stays + need.perhaps <= context_.budget;
  if (need.sure && (charges.immovable_blocks > 0 || charges.kernel_blocks > 0)) {
    const Bytes window = Compactor(context_.pool).largest_window([this](ValueId owner) {
      return owner.valid() && (may_go(owner) || lineage_[owner].movable());
    });
    need.sure = need.most + in_pool <= window;
  }
  return need;
}

}  // namespace recoup::detail
