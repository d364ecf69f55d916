#include "csrc/steps/follow/planned_writes.h"

#include <algorithm>

namespace recoup::detail {

PlannedWrites::PlannedWrites(const EvictionList& list) {
  for (const EvictionList::Entry& entry : list.entries()) {
    if (entry.spills) {
      spilled_.push_back(entry.victim);
      if (!entry.victim.in_step()) {
        before_.push_back(entry.victim);
      }
    }
  }
  std::sort(spilled_.begin(), spilled_.end());
}

bool PlannedWrites::contains(const Made& value) const {
  return std::binary_search(spilled_.begin(), spilled_.end(), value);
}

void PlannedWrites::begin(const StepLog& step, const Engine& engine) {
  for (const Made& name : before_) {
    if (const ValueId value = step.value(name); value.valid()) {
      changed_.push_back(engine.values().ticket(engine.value(value).storage));
    }
  }
}

void PlannedWrites::end_op(const StepLog& step, const Engine& engine,
                           std::span<const Operand> operands, std::span<const StorageId> fresh) {
  const auto consider = [&](StorageId storage) {
    const std::optional<Made> now = step.find(engine.current(storage));
    const std::optional<Made> next = step.name_in_next_step(storage);
    if ((now && contains(*now)) || (next && contains(*next))) {
      changed_.push_back(engine.values().ticket(storage));
    }
  };
  for (const StorageId storage : fresh) {
    consider(storage);
  }
  for (const Operand& operand : operands) {
    // Without a comparison each use invalidates a copy: Note [Copies of what is used].
    if (operand.storage.valid() && (operand.written || !engine.options().spill_compares)) {
      consider(operand.storage);
    }
  }
}

ValueId PlannedWrites::next(const Engine& engine) {
  while (!changed_.empty()) {
    const PinTicket ticket = changed_.front();
    changed_.pop_front();
    if (!engine.values().holds(ticket)) {
      continue;
    }
    const ValueId id = engine.current(ticket.storage);
    if (engine.value(id).writable()) {
      return id;
    }
  }
  return {};
}

}  // namespace recoup::detail
