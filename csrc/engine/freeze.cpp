// Note [Freeze]
// A leaf is about to change (a parameter in optimizer.step) or to be seen from outside, so nothing
// may be recomputed from what it holds now, ever after. Walking forward from it through values
// without bytes:
//
//   leaf --> a (evicted, dead) --> b (resident)        b becomes a leaf; a is lost
//        \-> c (evicted, user holds it)                c is rematerialized, then becomes a leaf
//
// Stopping at the first lost value would be wrong: b could be evicted later and recomputed from the
// new parameter. So would be stopping at a resident value that a kernel is writing over: nothing
// can be recomputed from it as soon as it is a leaf. Where getting c back does not fit, the old
// content is kept as a private copy instead, for as long as something hangs on it.
//
// A dead b on which an evicted gradient hangs would be a leaf that stays until somebody asks for
// the gradient. So what is evicted behind dead values is brought back too: then nobody needs b.
#include <algorithm>
#include <chrono>
#include <utility>

#include "csrc/engine/engine.h"
#include "csrc/engine/replay.h"

namespace recoup::detail {

Engine::Dependents Engine::dependents(ValueId leaf, Reach reach) const {
  Dependents found;
  std::vector<ValueId> stack{leaf};
  const std::uint32_t mark = lineage_.next_mark();
  lineage_[leaf].mark = mark;
  while (!stack.empty()) {
    const ValueId at = stack.back();
    stack.pop_back();
    lineage_.for_each_consumer(at, [&](OpId op) {
      lineage_.for_each_output(op, [&](ValueId id) {
        const Value& value = lineage_[id];
        if (value.mark == mark) {
          return;
        }
        value.mark = mark;
        if (value.resident()) {
          found.resident.push_back(id);
          const bool passed = value.writing || (reach == Reach::kPastDead && !value.held());
          if (!passed) {
            return;
          }
        } else {
          found.evicted.push_back(id);
          if (value.held()) {
            found.needed.push_back(id);
          }
        }
        stack.push_back(id);
      });
    });
  }
  return found;
}

// Cuts everything that was found; the needed ones are resident by now.
void Engine::freeze(ValueId leaf, const Dependents& dependents) {
  ++stats_.freezes;
  for (ValueId id : dependents.evicted) {
    if (lineage_[id].evicted()) {
      values_.transition(id, Residency::kLost);
    }
    values_.make_leaf(id);
    values_.settle_later(id);
  }
  for (ValueId id : dependents.resident) {
    lineage_[id].frozen = true;
    values_.make_leaf(id);
    ++stats_.frozen_values;
    values_.settle_later(id);
  }
  values_.drain();
  RECOUP_CHECK(!lineage_.contains(leaf) || !lineage_.has_consumers(leaf));
}

// The storage goes on with a new value in the same place; the old value keeps a private copy.
void Engine::keep_copy(ValueId leaf) {
  values_.hard_pin(leaf);
  BlockId copy;
  try {
    copy = take_block(lineage_[leaf].nbytes);
  } catch (...) {
    values_.hard_unpin(leaf);
    throw;
  }
  device_.copy(offset(copy), values_.location(leaf), lineage_[leaf].nbytes);
  const Tick last_access = lineage_[leaf].last_access;
  const bool writing = std::exchange(lineage_[leaf].writing, false);
  Value& now = lineage_[values_.pass_on(lineage_[leaf].storage)];
  now.last_access = last_access;
  now.writing = writing;
  values_.give_copy(leaf, copy);
  ++stats_.leaf_copies;
  values_.hard_unpin(leaf);
}

void Engine::freeze_or_copy(StorageId storage) {
  const ValueId leaf = storages_[storage].current;
  if (!lineage_[leaf].leaf() || !lineage_.has_consumers(leaf)) {
    return;
  }
  const Dependents found = dependents(leaf, Reach::kPastDead);
  if (found.needed.empty()) {
    freeze(leaf, dependents(leaf));
    return;
  }
  Bytes to_restore{0};
  for (ValueId id : found.needed) {
    to_restore += lineage_[id].size;
  }
  // What is needed will mostly be used soon (gradients by the optimizer), so it is better brought
  // back now than kept replayable by a copy, unless it would crowd out everything else.
  if (to_restore.count() * 2 > options_.budget.count() && lineage_[leaf].size <= to_restore) {
    try {
      keep_copy(leaf);
      return;
    } catch (const OutOfBudget&) {
      // The other way may still fit.
    }
  }
  std::vector<ValueId> held;
  try {
    restore_dependents(leaf, held);
  } catch (const OutOfBudget&) {
    release(held);
    keep_copy(leaf);
    return;
  }
  freeze(leaf, dependents(leaf));
  release(held);
}

// Makes resident, and pins, all that the user holds of what hangs on a leaf. Bringing some of it
// back may evict other parts, or open the way to what was hidden behind them, so this goes on until
// nothing is missing; it ends, because what was brought back stays.
void Engine::restore_dependents(ValueId leaf, std::vector<ValueId>& held) {
  for (;;) {
    const Dependents found = dependents(leaf, Reach::kPastDead);
    if (found.needed.empty()) {
      return;
    }
    std::vector<ValueId> wanted = found.needed;
    for (ValueId id : found.resident) {
      if (lineage_[id].storage.valid() && lineage_[id].hard_pins == 0) {
        wanted.push_back(id);
      }
    }
    acquire(wanted);
    held.insert(held.end(), wanted.begin(), wanted.end());
  }
}

void Engine::forsake_external(StorageId storage) {
  const ValueId leaf = storages_[storage].current;
  const Dependents found = dependents(leaf);
  if (!found.needed.empty()) {
    throw std::runtime_error(
        "recoup: the memory of a tensor was replaced where recoup could not see it, and an evicted "
        "tensor was made from its old content. Use tensor operations, or recoup.materialize what "
        "depends on it first");
  }
  if (observer_ != nullptr) {
    observer_->on_forsake(storage);
  }
  freeze(leaf, found);
  let_go(storage);
}

bool Engine::has_needed_dependents(StorageId storage) const {
  return !dependents(storages_[storage].current).needed.empty();
}

// Note [Dead leaves]
// A dead leaf is kept so that what was made from it stays evictable. That is worth its bytes for a
// batch of inputs, on which large activations hang, and not for a gradient, on which only optimizer
// state hangs: state that is updated in place has a version more each step, so its replay costs
// more each step, and the lineage would keep every gradient that there ever was. So what
// lives and was written in place does not count, and a leaf with less hanging on it than its own
// size is let go; what hangs on it becomes leaves.
void Engine::consider_dead_leaf(ValueId id) {
  const Value& value = lineage_[id];
  if (!options_.usefulness || !value.leaf() || !value.resident() || value.storage.valid() ||
      value.hard_pins > 0 || value.soft_pins > 0 || !lineage_.has_consumers(id)) {
    return;
  }
  const Dependents found = dependents(id);
  if (!found.needed.empty()) {
    return;
  }
  Bytes hanging{0};
  for (ValueId dependent : found.resident) {
    const bool state = lineage_[dependent].storage.valid() &&
                       !lineage_[lineage_[dependent].producer].written.empty();
    hanging += state ? Bytes(0) : lineage_[dependent].size;
  }
  if (hanging <= value.size) {
    freeze(id, found);
    values_.settle(id);
  }
}

// Leaves that are written again and again (optimizer state, parameters made in the scope) stay for
// long: at the low end they do not cut the room that everything else shares. Once a storage.
void Engine::place_low(StorageId id) {
  HeldStorage& storage = storages_[id];
  Value& value = lineage_[storage.current];
  if (storage.placed || !value.leaf() || !value.block.valid() || value.fixed > 0 || value.escaped) {
    return;
  }
  storage.placed = true;
  if (shortfall(value.size) > Bytes(0)) {
    return;  // both copies exist for a moment
  }
  const auto low = pool_.allocate(value.size, Zone::kLow);
  if (!low) {
    return;
  }
  touch_pages(offset(*low), value.size);
  stats_.peak_bytes = std::max(stats_.peak_bytes, charged().count());
  BlockId before;
  if (offset(*low) < offset(value.block)) {
    const auto start = std::chrono::steady_clock::now();
    before = relocate(id, *low);
    stats_.move_ns += Nanoseconds(std::chrono::steady_clock::now() - start).count();
  }
  if (!before.valid()) {
    pool_.free(*low);
    return;
  }
  values_.free_bytes(before);
  ++stats_.moves;
  stats_.moved_bytes += value.size.count();
}

// Note [State]
// What a storage holds is state, such as a parameter, a moment of an optimizer, a moving average,
// when an op changes it in place by other values, reading what it was, after another op has read
// that; and either its first content was made from nothing (zeros, random numbers), or that
// happened to it before. To scale it by numbers (weight decay, a mask) is no such change, and hides
// none. From then on it is a leaf. Its lineage would grow by each change, through all the inputs of
// all of them, and whether a freeze ended it would depend on what is evicted when: below
// parameters, gradients and moments some budgets replayed each parameter from its initialization
// and larger ones failed. All of this is a property of the program, not of the budget, so the rule
// is the same in every one; a parameter that is made inside the scope is from its first update on
// what one from outside is. Activations are changed before anybody has read them (relu_ on what a
// convolution made), and a gradient to which autograd adds that of another branch is changed once,
// and was computed.
void Engine::make_state(StorageId storage) {
  const ValueId one[] = {current(storage)};
  const Value& value = lineage_[one[0]];
  if (value.leaf() || !value.was_read || !(value.from_nothing || value.changed)) {
    return;
  }
  acquire(one);
  values_.make_leaf(one[0]);
  values_.drain();
  release(one);
}

void Engine::before_write(StorageId storage) {
  freeze_or_copy(storage);
  if (options_.in_place == InPlace::kShare) {
    place_low(storage);
  }
}

// Getting one argument back may have made a leaf of another one on which something hangs.
bool Engine::start_writing(std::span<const StorageId> storages) {
  for (StorageId storage : storages) {
    const ValueId id = current(storage);
    if (lineage_[id].leaf() && lineage_.has_consumers(id)) {
      return false;
    }
  }
  for (StorageId storage : storages) {
    lineage_[current(storage)].writing = true;
  }
  return true;
}

}  // namespace recoup::detail
