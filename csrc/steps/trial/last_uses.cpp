#include "csrc/steps/trial/last_uses.h"

#include <algorithm>

namespace recoup::detail {

void LastUses::end_op(std::span<const Operand> operands, std::span<const StorageId> fresh) {
  for (const StorageId storage : fresh) {
    in_use_.push_back(engine_.current(storage));
  }
  for (const Operand& operand : operands) {
    if (operand.storage.valid()) {
      in_use_.push_back(engine_.current(operand.storage));
    }
  }
  end_uses();
  if (engine_.context().tier.open()) {
    note_writes();
  }
}

// A replay ends when the next one begins, or an op ends.
void LastUses::begin_replay(const Op& op) {
  end_uses();
  for (const EdgeId edge : op.inputs) {
    in_use_.push_back(engine_.context().lineage[edge].value);
  }
  std::ranges::copy_if(op.outputs, std::back_inserter(in_use_), &ValueId::valid);
}

void LastUses::end_uses() {
  for (const ValueId value : in_use_) {
    used_[value] = now();
  }
  in_use_.clear();
}

void LastUses::note_writes() {
  engine_.context().lineage.for_each_value([&](ValueId id, const Value& value) {
    if (value.clean()) {
      written_.try_emplace(id, now());
    } else if (!value.copying) {
      written_.erase(id);
    }
  });
}

std::uint32_t LastUses::earliest(ValueId value, bool spills) {
  end_uses();
  const std::uint32_t life = log_.life_in(engine_.value(value).block);
  std::uint32_t earliest = std::max(life + 1, used_.get(value));
  if (spills) {
    const auto written = written_.find(value);
    earliest = written == written_.end() ? now() : std::max(earliest, written->second);
  }
  return std::min(earliest, now());
}

}  // namespace recoup::detail
