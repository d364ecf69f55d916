#include "csrc/engine/state/non_recomputables.h"

#include <algorithm>
#include <vector>

#include "csrc/base/check.h"

namespace recoup::detail {

NonRecomputables::NonRecomputables(Context& context, Values& values)
    : context_(context), lineage_(context.lineage), values_(values) {}

Dependents NonRecomputables::dependents(ValueId source, Reach reach) const {
  Dependents found;
  Dependents::List stack;
  stack.push_back(source);
  const std::uint32_t mark = lineage_.next_mark();
  lineage_[source].mark = mark;
  while (!stack.empty()) {
    const ValueId at = stack.take_last();
    lineage_.for_each_consumer(at, [&](OpId op) {
      lineage_.for_each_output(op, [&](ValueId id) {
        const Value& value = lineage_[id];
        if (value.mark == mark) {
          return;
        }
        value.mark = mark;
        if (value.has_content()) {
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

void NonRecomputables::freeze(ValueId source, const Dependents& dependents) {
  ++context_.stats.freezes;
  for (ValueId id : dependents.evicted) {
    if (lineage_[id].evicted()) {
      values_.transition(id, Residency::kLost);
    }
    values_.make_non_recomputable(id, NoReplay::kFreed);
    values_.collect_later(id);
  }
  for (ValueId id : dependents.resident) {
    lineage_[id].flags.frozen = true;
    values_.make_non_recomputable(id, NoReplay::kFreed);
    ++context_.stats.frozen_values;
    values_.collect_later(id);
  }
  values_.drain();
  RECOUP_CHECK(!lineage_.contains(source) || !lineage_.has_consumers(source));
}

// Note [Dead sources]
// A dead non-recomputable value is kept so that its dependents stay evictable. That is worth its
// bytes for a batch of inputs, from which large activations are computed. It is not worth them for
// a gradient, on which only optimizer state depends: state that is updated in place gains a version
// per step, so its replay gets more expensive each step, and the lineage would keep every gradient
// ever computed. So live values that were written in place do not count. A source whose other
// dependents are in sum no larger than itself is freed, and its dependents become non-recomputable.
//
// A small source (Options::small_result_bytes) costs next to nothing, and its end could make a
// large value non-recomputable: `y[:, 1:3] = 0` writes y from a tensor of 4 bytes that dies at
// once. So for a small source two kinds of written values count, too: those that were written from
// small values alone, and those whose storage was made from nothing and not changed since it was
// read (the gradient of `x[i]` is added to zeros).
// Whether the op, which writes values, reads only small ones in addition to their former content.
bool NonRecomputables::is_written_from_small(OpId op) const {
  bool small = true;
  lineage_.for_each_input(op, [&](ValueId input) {
    small &= lineage_[input].size <= context_.options.small_result_bytes ||
             std::any_of(lineage_[op].written.begin(), lineage_[op].written.end(),
                         [input](const WrittenValue& each) { return each.before == input; });
  });
  return small;
}

void NonRecomputables::consider(ValueId id) {
  const Value& value = lineage_[id];
  if (!context_.options.usefulness || value.recomputable() || !value.has_content() ||
      value.storage.valid() || value.hard_pins > 0 || value.soft_pins > 0 ||
      !lineage_.has_consumers(id)) {
    return;
  }
  const Dependents found = dependents(id);
  if (!found.needed.empty()) {
    return;
  }
  const bool small = value.size <= context_.options.small_result_bytes;
  Bytes hanging{0};
  // The last op that was examined: the dependents of a list's value are all written by one op.
  OpId examined;
  bool from_small = false;
  for (ValueId dependent : found.resident) {
    const Value& held = lineage_[dependent];
    if (small && held.producer != examined) {
      examined = held.producer;
      from_small = is_written_from_small(examined);
    }
    const bool state = held.storage.valid() && !lineage_[held.producer].written.empty() &&
                       !(small && (from_small || (held.flags.from_nothing && !held.flags.changed)));
    hanging += state ? Bytes(0) : held.size;
  }
  if (hanging <= value.size) {
    freeze(id, found);
    values_.collect(id);
  }
}

// Frees a dead non-recomputable value whose dependents include no evicted value that is needed: its
// resident dependents become non-recomputable. If they are larger than the value, less can be
// evicted later, so this is done only if it makes the request fit now.
bool NonRecomputables::drop_one(Bytes missing) {
  struct Droppable {
    ValueId source;
    Bytes gain;  // its size minus the size of what becomes non-recomputable
  };
  std::vector<Droppable> droppable;
  Bytes total{0};
  lineage_.for_each_value([&](ValueId id, const Value& value) {
    if (value.recomputable() || !value.resident() || value.held()) {
      return;
    }
    const Dependents found = dependents(id);
    if (found.needed.empty()) {
      Bytes gain = value.size;
      for (ValueId dependent : found.resident) {
        gain -= lineage_[dependent].size;
      }
      total += value.size;
      droppable.push_back({id, gain});
    }
  });
  const auto best =
      std::max_element(droppable.begin(), droppable.end(),
                       [](const Droppable& a, const Droppable& b) { return a.gain < b.gain; });
  if (best == droppable.end() ||
      (best->gain < Bytes(0) && (missing <= Bytes(0) || total < missing))) {
    return false;
  }
  freeze(best->source);
  values_.collect(best->source);
  return true;
}

}  // namespace recoup::detail
