#include "csrc/engine/in_parts.h"

#include <algorithm>

#include "csrc/engine/device.h"
#include "csrc/pool/compactor.h"

namespace recoup::detail {

InParts::InParts(Context& context, const Sources& sources)
    : context_(context),
      lineage_(context.lineage),
      values_(sources.values),
      freezer_(sources.freezer),
      replayer_(sources.replayer),
      importer_(sources.importer),
      reporter_(sources.reporter) {}

// Copies of what is written (in_place) and segments are there to compare with.
bool InParts::begin(std::span<const Part> parts) {
  if (context_.options.in_place != InPlace::kShare || context_.options.block_size > Bytes(0)) {
    return false;
  }
  for (const Part& part : parts) {
    for (const PartOperand& operand : part.operands) {
      if (operand.written) {
        settle(operand.storage);
      }
    }
  }
  if (is_there(parts)) {
    return true;
  }
  Need need = look(parts);
  if (!need.sure && context_.charges.external > Bytes(0)) {
    end();
    context_.device.sweep_external();
    importer_.bring_in();
    need = look(parts);
  }
  if (!need.sure) {
    end();
  }
  if (need.most + need.stays > context_.options.budget) {
    reporter_.fail(need.most, "a part of it needs that");
  }
  return need.sure;
}

void InParts::settle(StorageId storage) {
  if (context_.observer != nullptr) {
    context_.observer->on_part(storage);
  }
  freezer_.before_write(storage);
  const ValueId one[] = {values_.current(storage)};
  if (lineage_[one[0]].leaf()) {
    return;
  }
  const bool evicted = lineage_[one[0]].evicted();
  if (evicted) {
    replayer_.acquire(one);
  }
  values_.make_leaf(one[0]);
  values_.drain();
  if (evicted) {
    replayer_.release(one);
  }
}

// Then no part allocates anything.
bool InParts::is_there(std::span<const Part> parts) const {
  return std::all_of(parts.begin(), parts.end(), [this](const Part& part) {
    return part.workspace == Bytes(0) &&
           std::all_of(part.operands.begin(), part.operands.end(), [this](const PartOperand& each) {
             const Value& value = lineage_[values_.current(each.storage)];
             return value.resident() && (value.leaf() || each.written);
           });
  });
}

void InParts::hold_slots() {
  has_slot_.clear();
  if (!context_.tier.open()) {
    return;
  }
  lineage_.for_each_value([this](ValueId id, const Value& value) {
    if (value.leaf() && value.evictable() && context_.tier.hold(value.size)) {
      has_slot_.resize(std::max(has_slot_.size(), id.index() + std::size_t{1}));
      has_slot_[id.index()] = true;
    }
  });
}

// Whether its bytes in the pool go when they are wanted.
bool InParts::may_go(ValueId id) const {
  const Value& value = lineage_[id];
  return value.evictable() &&
         (!value.leaf() || (id.index() < has_slot_.size() && has_slot_[id.index()]));
}

// Beside what is there and stays. A kernel finds its operands in place, and so between them as many
// pieces as there are of them, and one more.
Bytes InParts::need_of(const Part& part) const {
  Bytes sum{0};
  std::vector<ValueId> seen;
  for (const PartOperand& operand : part.operands) {
    const ValueId id = values_.current(operand.storage);
    const Value& value = lineage_[id];
    if (std::find(seen.begin(), seen.end(), id) != seen.end()) {
      continue;
    }
    seen.push_back(id);
    const bool there = value.external != nullptr || (value.block.valid() && !may_go(id));
    sum += there ? Bytes(0) : value.size;
  }
  const Bytes workspace = context_.pool.round_up(part.workspace);
  return sum + Bytes(workspace.count() * (static_cast<std::int64_t>(seen.size()) + 1));
}

InParts::Need InParts::look(std::span<const Part> parts) {
  context_.tier.hold_slots();
  hold_slots();
  const Charges& charges = context_.charges;
  Need need;
  bool replays = false;
  for (const Part& part : parts) {
    need.most = std::max(need.most, need_of(part));
    for (const PartOperand& operand : part.operands) {
      replays |= !lineage_[values_.current(operand.storage)].leaf();
    }
  }
  Bytes in_pool{0};
  lineage_.for_each_value([&](ValueId id, const Value& value) {
    if (value.block.valid() && !may_go(id)) {
      const bool dead_leaf = value.leaf() && !value.held();
      (dead_leaf || value.evictable() ? need.perhaps : need.stays) += value.size;
      in_pool += value.size;
    }
  });
  need.stays += charges.external + charges.kernel_held;
  need.sure = !replays && need.most + need.stays + need.perhaps <= context_.options.budget;
  if (need.sure && (charges.islands > 0 || charges.kernel_blocks > 0)) {
    const Bytes window = Compactor(context_.pool).largest_window([this](ValueId owner) {
      return owner.valid() && (may_go(owner) || lineage_[owner].movable());
    });
    need.sure = need.most + in_pool <= window;
  }
  return need;
}

}  // namespace recoup::detail
