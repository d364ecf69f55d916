// What a conductor may tell the engine.
#include "csrc/engine/engine.h"
#include "csrc/engine/replay.h"

namespace recoup::detail {

ValueTicket Engine::ticket(ValueId id) const {
  const OpId producer = lineage_[id].producer;
  return producer.valid() ? ValueTicket{.value = id, .made_by = lineage_[producer].sequence}
                          : ValueTicket{};
}

bool Engine::holds(const ValueTicket& ticket) const {
  return ticket.value.valid() && lineage_.contains(ticket.value) &&
         lineage_[ticket.value].producer.valid() &&
         lineage_[lineage_[ticket.value].producer].sequence == ticket.made_by;
}

void Engine::drop(const ValueTicket& ticket) {
  if (holds(ticket) && Candidates::is_one(lineage_[ticket.value])) {
    told_to_evict_ = true;
    evict_value(ticket.value);
  }
}

void Engine::keep(const ValueTicket& ticket, bool on) {
  if (!holds(ticket)) {
    return;
  }
  Value& value = lineage_[ticket.value];
  if (value.kept != on && (!on || value.resident())) {
    value.kept = on;
    if (!on) {
      values_.settle(ticket.value);
    }
  }
}

void Engine::restore(std::span<const ValueTicket> tickets) {
  std::vector<ValueId> wanted;
  Bytes size{0};
  for (const ValueTicket& ticket : tickets) {
    if (holds(ticket) && lineage_[ticket.value].evicted()) {
      wanted.push_back(ticket.value);
      size += lineage_[ticket.value].size;
    }
  }
  // Without the room, each is got back when it is used.
  if (wanted.empty() || shortfall(size) > Bytes(0)) {
    return;
  }
  // While a replay runs another thread may let go of what only these hold: a dead value's record
  // must outlive a first try that fails.
  for (ValueId id : wanted) {
    values_.soft_pin(id);
  }
  const auto unpin_all = [&] {
    for (ValueId id : wanted) {
      values_.soft_unpin(id);
      values_.settle(id);
    }
  };
  try {
    acquire(wanted, Tries::kOne);
  } catch (const OutOfBudget&) {
    unpin_all();
    return;
  } catch (...) {
    unpin_all();
    throw;
  }
  for (ValueId id : wanted) {
    lineage_[id].kept = true;
  }
  release(wanted);
  unpin_all();
}

}  // namespace recoup::detail
