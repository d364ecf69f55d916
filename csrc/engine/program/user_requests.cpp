#include "csrc/engine/program/user_requests.h"

#include <algorithm>
#include <utility>

#include "csrc/base/strings.h"
#include "csrc/engine/state/exit_room.h"
#include "csrc/engine/tier/async_copies.h"

namespace recoup::detail {

UserRequests::UserRequests(Context& context, const Parts& parts)
    : context_(context),
      lineage_(context.lineage),
      values_(parts.values),
      non_recomputables_(parts.non_recomputables),
      candidates_(parts.candidates),
      evictor_(parts.evictor),
      replayer_(parts.replayer),
      freezer_(parts.freezer),
      pages_(parts.pages),
      reporter_(parts.reporter) {}

bool UserRequests::evict(StorageId storage) {
  if (context_.observer != nullptr) {
    context_.observer->on_evict_request(storage);
  }
  const ValueId id = values_.current(storage);
  if (lineage_[id].evictable()) {
    evictor_.evict_on_request(id);
  }
  return !lineage_[id].resident();
}

bool UserRequests::escape(StorageId storage) {
  const bool known = lineage_[values_.current(storage)].escaped;
  const bool was_shown_only = std::exchange(values_[storage].shown_only, false);
  give_address(storage);
  return !known || was_shown_only;
}

void UserRequests::give_address(StorageId storage) {
  if (context_.observer != nullptr) {
    context_.observer->on_escape(storage);
  }
  const ValueId first = values_.current(storage);
  if (lineage_[first].escaped && !lineage_.has_consumers(first)) {
    return;  // a disowned value may have consumers
  }
  {
    const Values::Hold held = replayer_.hold(first);
    without_copy(first);
    values_.make_non_recomputable(first, NoReplay::kEscaped);
    values_.drain();
  }
  freezer_.freeze_or_copy(storage, Freezer::OldVersion::kResident);
  // Restoring dependents may have spilled the value itself.
  const ValueId now = values_.current(storage);
  const Values::Hold held = replayer_.hold(now);
  without_copy(now);
  lineage_[now].escaped = true;
  values_.set_immovable(values_[storage], true);
  ++context_.stats.escapes;
}

// Note [Shown]
// An object of the program (a NumPy array) shows a storage's bytes, and may write them at any time
// until it is gone. Meanwhile the storage is escaped: nothing is recomputed from it. After that,
// its content is a non-recomputable value like any other, from which results can be recomputed
// again: one look at a parameter costs no more than the step that is running. The storage stays
// where it is, because code may have taken its address from the object.
PinTicket UserRequests::show(StorageId storage, bool leaves) {
  const bool first = !lineage_[values_.current(storage)].escaped;
  give_address(storage);
  if (first && leaves) {
    leave_pool(storage);
  }
  HeldStorage& held = values_[storage];
  ++held.shown;
  held.shown_only |= first;
  return values_.ticket(storage);
}

void UserRequests::end_show(const PinTicket& ticket) noexcept {
  if (!values_.holds(ticket)) {
    return;
  }
  HeldStorage& held = values_[ticket.storage];
  if (--held.shown == 0 && std::exchange(held.shown_only, false)) {
    (void)pin(ticket.storage);
    end_escape(ticket.storage);
  }
}

void UserRequests::end_escape(StorageId storage) noexcept {
  if (context_.observer != nullptr) {
    context_.observer->on_escape_end(storage);
  }
  HeldStorage& held = values_[storage];
  lineage_[held.current].escaped = false;
  values_.set_immovable(held, held.user_pins > 0);
  candidates_.update(held.current);
}

bool UserRequests::escape_and_leave(StorageId storage) {
  const bool known = lineage_[values_.current(storage)].escaped;
  const bool is_new = escape(storage);
  if (!known) {
    leave_pool(storage);
  }
  return is_new;
}

void UserRequests::leave_pool(StorageId storage) {
  const ValueId id = values_.current(storage);
  const Value& value = lineage_[id];
  RECOUP_CHECK(value.escaped && value.resident());
  const bool used = value.hard_pins > 0 || value.soft_pins > 0 || value.fixed > 0;
  if (used || lineage_.has_consumers(id) || values_[storage].before_write.valid()) {
    return;
  }
  if (value.block.valid()) {
    if (!values_.move_out(id)) {
      return;
    }
    pages_.charged_outside();
  }
  // Also called for a storage that is outside already: in a smaller budget it may have been brought
  // in.
  if (context_.observer != nullptr) {
    context_.observer->on_leave(storage);
  }
}

// Code that has the address may write there unseen.
void UserRequests::without_copy(ValueId resident) {
  values_.stop_copying(resident);
  values_.drop_copy(resident);
}

bool UserRequests::is_held(StorageId storage) const {
  return values_[storage].user_pins > 0 || lineage_[values_.current(storage)].escaped;
}

bool UserRequests::has_needed_dependents(StorageId storage) const {
  return !non_recomputables_.dependents(values_.current(storage)).needed.empty();
}

PinTicket UserRequests::pin(StorageId storage) {
  Values::Hold hold = replayer_.hold(values_.current(storage));
  without_copy(hold.id());
  hold.release();  // unpin ends it
  HeldStorage& held = values_[storage];
  ++held.user_pins;
  values_.set_immovable(held, true);
  if (context_.observer != nullptr) {
    context_.observer->on_pin(storage);
  }
  return values_.ticket(storage);
}

void UserRequests::unpin(const PinTicket& ticket) noexcept {
  if (!values_.holds(ticket)) {
    return;
  }
  if (context_.observer != nullptr) {
    context_.observer->on_unpin(ticket.storage);
  }
  HeldStorage& storage = values_[ticket.storage];
  --storage.user_pins;
  values_.set_immovable(storage, storage.user_pins > 0 || lineage_[storage.current].escaped);
  values_.release(storage.current);
}

void UserRequests::set_rule(StorageId storage, StorageRule rule) {
  const EngineFlags& flags = lineage_[values_.current(storage)].flags;
  if (rule == StorageRule::kStays ? flags.stays : flags.off_tier) {
    return;
  }
  const ValueId id = values_.current(storage);
  {
    const Values::Hold held = replayer_.hold(id);
    if (rule == StorageRule::kStays) {
      lineage_[id].flags.stays = true;
    } else {
      lineage_[id].flags.off_tier = true;
      values_.set_spillable(id, false);
      without_copy(id);
    }
  }
  candidates_.update(id);
  if (context_.observer != nullptr) {
    context_.observer->on_rule(storage, rule);
  }
}

// Acquires all live storages at once, so that none is evicted to make room for another.
void UserRequests::materialize_all() {
  if (context_.observer != nullptr) {
    context_.observer->on_materialize_all();
  }
  context_.copies->wait_for_all();
  Bytes live = context_.charges.external;
  lineage_.for_each_value([&](ValueId, const Value& value) {
    live += value.storage.valid() && value.external == nullptr ? value.size : Bytes(0);
  });
  std::vector<ValueId> wanted = to_get_back();
  std::vector<Values::Hold> held;
  try {
    held = hold_all(wanted);
  } catch (const OutOfBudget& error) {
    OutOfBudgetReport report = error.report();
    // Evicted values must be restored now, through all their ancestors.
    report.enough = room_for_exit(context_);
    if (report.enough <= report.budget) {
      report.enough = std::max(reporter_.all_resident(), report.budget + report.asked + Bytes(1));
    }
    report.next = report.enough;
    report.leaving = true;
    report.least = live > report.budget ? live : Bytes(0);
    report.reason = str_cat("the tensors that are alive at the end of the scope need ",
                            short_text(live), report.reason.empty() ? "" : "; ", report.reason);
    if (context_.options.spill_to_leave && context_.options.spill <= Bytes(0) &&
        !context_.tier.open() && !context_.tier.closed()) {
      report.reason +=
          "; the file of a spill tier could not be created in the directories for temporary files";
    }
    throw OutOfBudget(std::move(report));
  } catch (const std::exception&) {
    keep_for_good(hold_each(wanted));
    throw;
  }
  keep_for_good(held);
}

// Includes values that the spill tier would take: otherwise one would be spilled to make room for
// another.
std::vector<ValueId> UserRequests::to_get_back() const {
  std::vector<ValueId> found;
  lineage_.for_each_value([&](ValueId id, const Value& value) {
    if (value.storage.valid() && (value.recomputable() || value.spilled() || value.evictable())) {
      found.push_back(id);
    }
  });
  return found;
}

std::vector<Values::Hold> UserRequests::hold_all(std::vector<ValueId>& wanted) {
  try {
    return replayer_.hold(wanted);
  } catch (const OutOfBudget&) {
    if (!borrow_tier()) {
      throw;
    }
  }
  wanted = to_get_back();
  return replayer_.hold(wanted);
}

bool UserRequests::borrow_tier() {
  const Options& options = context_.options;
  if (!options.spill_to_leave || options.spill > Bytes(0) || context_.tier.open() ||
      context_.tier.closed() || !context_.device.lend_tier()) {
    return false;
  }
  Bytes size{0};  // total size of all copies
  lineage_.for_each_value([&](ValueId, const Value& value) {
    size += value.block.valid() || value.evicted() ? value.size + context_.tier.unit() : Bytes(0);
  });
  context_.tier.open(size);
  std::vector<ValueId> in_pool;
  lineage_.for_each_value([&](ValueId id, const Value& value) {
    if (value.block.valid() && context_.tier.takes(value.nbytes)) {
      in_pool.push_back(id);
    }
  });
  for (const ValueId id : in_pool) {
    values_.set_spillable(id, true);
  }
  return true;
}

// A value that cannot be acquired does not affect the others.
std::vector<Values::Hold> UserRequests::hold_each(std::span<const ValueId> values) {
  std::vector<Values::Hold> held;
  held.reserve(values.size());
  for (const ValueId id : values) {
    if (!lineage_.contains(id) || !lineage_[id].storage.valid()) {
      continue;  // it died on another thread meanwhile
    }
    try {
      held.push_back(replayer_.hold(id));
    } catch (const std::exception&) {
      // The caller rethrows the first error.
    }
  }
  return held;
}

void UserRequests::keep_for_good(const std::vector<Values::Hold>& held) {
  for (const Values::Hold& each : held) {
    values_.drop_copy(each.id());
    values_.make_non_recomputable(each.id(), NoReplay::kExit);
  }
  values_.drain();
}

bool UserRequests::materialized() const {
  bool all = true;
  lineage_.for_each_value([&](ValueId, const Value& value) {
    all &= !value.storage.valid() || (!value.recomputable() && value.resident());
  });
  return all;
}

PinnedRow UserRequests::pinned_row(ValueId id, const Value& value) const {
  PinnedRow row{.size = value.size, .by = {}, .op = {}, .why = {}};
  if (context_.makers != nullptr) {
    row.maker = context_.makers->of(id);
  }
  if (value.storage.valid()) {
    row.name = values_[value.storage].name;
  }
  const bool left = value.storage.valid() && values_[value.storage].left;
  const bool has_line =
      value.escaped && value.storage.valid() && values_[value.storage].address_line.valid();
  if (value.external != nullptr && value.flags.among_outside &&
      context_.options.page_window > Bytes(0)) {
    row.by = "in paged memory";
  } else if (value.external != nullptr && !left && !has_line) {
    row.by = "made outside the scope";
  } else if (value.escaped) {
    row.by = "escape";
    row.line = has_line ? values_[value.storage].address_line : LineId();
  } else if (value.storage.valid() && values_[value.storage].user_pins > 0) {
    row.by = "pin";
  } else if (value.flags.stays) {
    row.by = "a rule";
  } else if (value.hard_pins > 0) {
    row.by = "a running op";
  } else {
    row.by = value.storage.valid() ? "non-recomputable" : "dead, used by replays of other values";
  }
  if (!value.recomputable()) {
    // Memory from outside that is waiting to be released needs no reason.
    row.why = value.external != nullptr && !value.storage.valid() ? "" : text_of(value.flags.why);
  } else {
    row.op = context_.device.name(lineage_[value.producer].payload);
  }
  return row;
}

std::vector<PinnedRow> UserRequests::pinned() const {
  std::vector<PinnedRow> rows;
  lineage_.for_each_value([&](ValueId id, const Value& value) {
    if (value.resident() && !value.evictable() && !value.copying) {
      rows.push_back(pinned_row(id, value));
    }
  });
  std::stable_sort(rows.begin(), rows.end(),
                   [](const PinnedRow& a, const PinnedRow& b) { return a.size > b.size; });
  return rows;
}

}  // namespace recoup::detail
