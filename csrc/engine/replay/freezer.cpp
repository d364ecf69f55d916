#include "csrc/engine/replay/freezer.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "csrc/lineage/neighborhood.h"
#include "recoup/errors.h"

namespace recoup::detail {

Freezer::Freezer(Context& context, const Parts& parts)
    : context_(context),
      lineage_(context.lineage),
      values_(parts.values),
      non_recomputables_(parts.non_recomputables),
      mover_(parts.mover),
      room_(parts.room),
      replayer_(parts.replayer),
      spiller_(parts.spiller) {}

// Gives the storage a new value in place; the old value gets a private copy.
void Freezer::keep_copy(ValueId source) {
  const Values::Hold held = replayer_.hold(source);
  Values::KernelBlock copy = room_.take_block(lineage_[source].nbytes);
  context_.device.copy(context_.pool.offset(copy.id()), values_.location(source),
                       lineage_[source].nbytes);
  const Tick last_access = lineage_[source].last_access;
  const bool writing = std::exchange(lineage_[source].writing, false);
  Value& now = lineage_[values_.add_version(lineage_[source].storage)];
  now.last_access = last_access;
  now.writing = writing;
  values_.give_copy(source, std::move(copy));
  ++context_.stats.old_version_copies;
}

void Freezer::freeze_or_copy(StorageId storage, OldVersion old) {
  const ValueId source = values_.current(storage);
  if (lineage_[source].recomputable() || !lineage_.has_consumers(source)) {
    return;
  }
  const Dependents found =
      non_recomputables_.dependents(source, NonRecomputables::Reach::kPastDead);
  if (found.needed.empty()) {
    non_recomputables_.freeze(source);
    return;
  }
  if (old == OldVersion::kResidentOrSpilled && lineage_[source].slot.valid()) {
    return;
  }
  Bytes to_restore{0};
  for (ValueId id : found.needed) {
    to_restore += lineage_[id].size;
  }
  // Needed values will mostly be used soon (gradients by the optimizer). So it is better to restore
  // them now than to keep them replayable by a copy, unless they would crowd out everything else.
  const Bytes size = lineage_[source].size;
  const bool crowds = to_restore.count() * 2 > context_.budget.count() && size <= to_restore;
  if (crowds ? keep_old(source, old) : restore_cheaply(source, found.needed)) {
    return;
  }
  // Neither copies nor restored values can be evicted: whichever takes less room is tried first,
  // and waits for memory if neither fits without waiting.
  const Charges& charges = context_.charges;
  const bool copies_are_less = charges.dead_sources - charges.dead_frozen + size <= to_restore;
  if (copies_are_less && keep_old(source, old)) {
    return;
  }
  try {
    const WithoutWaiting more_follows(context_);
    restore_and_freeze(source, {});
    return;
  } catch (const OutOfBudget&) {
    if (keep_old(source, old)) {
      return;
    }
    if (context_.more == nullptr) {
      throw;
    }
  }
  if (copies_are_less) {
    keep_copy(source);
  } else {
    restore_and_freeze(source, {});
  }
}

// Note [Restoring cheaply]
// Restored values stay pinned until all are restored, so each replay has less room than the one
// before it, and evicts what a later one needs. Saved activations that outlive a step
// (retain_graph) nearly fill the budget: a hundred times the ops of the step were replayed before
// everything fitted, or it never did. So one attempt may cost at most twice what it costs to run
// each op just once, and none is made while failed attempts have cost more than a tenth of the
// program's own ops. A program whose attempts fail loses no more than that tenth plus the cost of
// one attempt.
bool Freezer::restore_cheaply(ValueId source, std::span<const ValueId> needed) {
  constexpr int kMostOfLeast = 2;
  constexpr int kWastedPart = 10;  // as a fraction of the program's op time: 1/10
  if (wasted_.count() > context_.stats.op_ns / kWastedPart) {
    return false;
  }
  const std::int64_t before = context_.stats.replay_cost_ns;
  try {
    const Nanoseconds most = replay_cost(lineage_, needed) * kMostOfLeast;
    restore_and_freeze(source, {.tries = Tries::kOne, .most = most});
    return true;
  } catch (const OutOfBudget&) {
    wasted_ += Nanoseconds(context_.stats.replay_cost_ns - before);
    return false;
  }
}

// Keeps the old content for replays after the storage has changed. False: no room.
bool Freezer::keep_old(ValueId source, OldVersion old) {
  if (old == OldVersion::kResidentOrSpilled && spiller_.save(source)) {
    return true;
  }
  try {
    const WithoutWaiting more_follows(context_);
    keep_copy(source);
    return true;
  } catch (const OutOfBudget&) {
    return false;
  }
}

void Freezer::restore_and_freeze(ValueId source, const Effort& effort) {
  const std::vector<Values::Hold> held = restore_dependents(source, effort);
  non_recomputables_.freeze(source);
}

// Makes resident, and pins, all dependents of a non-recomputable value that the user holds.
// Restoring some of them may evict others, or uncover dependents beyond them, so this is repeated
// until none is missing. It ends because restored values stay.
std::vector<Values::Hold> Freezer::restore_dependents(ValueId source, const Effort& effort) {
  std::vector<Values::Hold> held;
  Effort left = effort;
  for (;;) {
    const Dependents found =
        non_recomputables_.dependents(source, NonRecomputables::Reach::kPastDead);
    if (found.needed.empty()) {
      return held;
    }
    std::vector<ValueId> wanted(found.needed.begin(), found.needed.end());
    for (ValueId id : found.resident) {
      if (lineage_[id].storage.valid() && lineage_[id].hard_pins == 0 && lineage_[id].resident()) {
        wanted.push_back(id);
      }
    }
    const Nanoseconds before(context_.stats.replay_cost_ns);
    std::ranges::move(replayer_.hold(wanted, left), std::back_inserter(held));
    left.most -= Nanoseconds(context_.stats.replay_cost_ns) - before;
  }
}

// Note [State]
// A storage holds state (a parameter, a moment of an optimizer, a moving average) if an op changes
// it in place, combining its old content with other values, after another op has read that content;
// and if either its first content was made from nothing (zeros, random numbers) or such a change
// has happened to it before. Scaling it by numbers (weight decay, a mask) is no such change, and
// does not hide an earlier one. From then on its value is non-recomputable. Otherwise its lineage
// would grow with each change, through all the inputs of all changes, and whether a freeze ended it
// would depend on what is evicted at the time: below parameters, gradients and moments, some
// budgets replayed each parameter from its initialization and larger ones failed. All of this is a
// property of the program, not of the budget, so the rule is the same in every budget: from its
// first update on, a parameter that is made inside the scope is treated like one from outside.
// Activations are no state: they are changed before any op has read them (relu_ on the result of a
// convolution). Nor is a gradient to which autograd adds that of another branch: it is changed
// once, and was computed.
void Freezer::make_state(StorageId storage) {
  const ValueId id = values_.current(storage);
  const Value& value = lineage_[id];
  if (!value.recomputable() || !value.flags.was_read ||
      !(value.flags.from_nothing || value.flags.changed)) {
    return;
  }
  const Values::Hold held = replayer_.hold(id);
  values_.make_non_recomputable(id, NoReplay::kState);
  values_.drain();
}

void Freezer::before_write(StorageId storage, OldVersion old) {
  freeze_or_copy(storage, old);
  if (context_.options.in_place == InPlace::kShare) {
    mover_.place_low(storage);
  }
}

// Restoring one argument may have made another one non-recomputable that has dependents.
bool Freezer::start_writing(std::span<const StorageId> storages) {
  for (StorageId storage : storages) {
    const ValueId id = values_.current(storage);
    if (!lineage_[id].recomputable() && lineage_.has_consumers(id) && !lineage_[id].slot.valid()) {
      return false;
    }
  }
  for (StorageId storage : storages) {
    lineage_[values_.current(storage)].writing = true;
  }
  return true;
}

}  // namespace recoup::detail
