#include "csrc/engine/program/schedule_requests.h"

#include <vector>

#include "csrc/base/at_end.h"
#include "recoup/errors.h"

namespace recoup::detail {

ScheduleRequests::ScheduleRequests(Context& context, Values& values, Evictor& evictor,
                                   Replayer& replayer)
    : context_(context),
      lineage_(context.lineage),
      values_(values),
      evictor_(evictor),
      replayer_(replayer) {}

void ScheduleRequests::drop(const ValueTicket& ticket) {
  if (values_.holds(ticket) && Candidates::is_one(lineage_[ticket.value])) {
    evictor_.evict_on_request(ticket.value);
  }
}

void ScheduleRequests::keep(const ValueTicket& ticket, bool on) {
  if (!values_.holds(ticket)) {
    return;
  }
  Value& value = lineage_[ticket.value];
  if (value.flags.kept != on && (!on || value.resident())) {
    value.flags.kept = on;
    if (!on) {
      values_.collect(ticket.value);
    }
  }
}

void ScheduleRequests::restore(std::span<const ValueTicket> tickets) {
  std::vector<ValueId> wanted;
  Bytes size{0};
  for (const ValueTicket& ticket : tickets) {
    if (values_.holds(ticket) && lineage_[ticket.value].evicted()) {
      wanted.push_back(ticket.value);
      size += lineage_[ticket.value].size;
    }
  }
  // If they do not all fit, each is restored when it is used.
  if (wanted.empty() || context_.shortfall(size) > Bytes(0)) {
    return;
  }
  // While a replay runs, other threads may release other holds on these values. The soft pins keep
  // the records of dead values, even if the first try fails.
  for (ValueId id : wanted) {
    values_.soft_pin(id);
  }
  const AtEnd unpin_all([&] {
    for (ValueId id : wanted) {
      values_.soft_unpin(id);
      values_.collect(id);
    }
  });
  try {
    const std::vector<Values::Hold> held = replayer_.hold(wanted, {.tries = Tries::kOne});
    for (ValueId id : wanted) {
      lineage_[id].flags.kept = true;
    }
  } catch (const OutOfBudget&) {
    // Each is restored when it is used.
  }
}

}  // namespace recoup::detail
