#include "csrc/engine/program/write_behind.h"

#include <algorithm>

#include "csrc/engine/state/hidden.h"

namespace recoup::detail {
namespace {

constexpr std::int64_t kWriteShare = 8;  // write while less than 1/8 of the budget is free
constexpr std::size_t kMostWrites = 4;  // limit of writes under way: a long op leaves time for some
constexpr std::int64_t kMostWritten = 32;  // at most 1/32 of the budget is in writes
constexpr std::size_t kMostVictims = 16;   // limit of victims to examine after one op
// With each look in vain, the number of values given up until the next look doubles up to this one.
constexpr std::int64_t kMostRest = 32;

}  // namespace

WriteBehind::WriteBehind(Context& context, const Parts& parts)
    : context_(context),
      values_(parts.values),
      evictor_(parts.evictor),
      spiller_(parts.spiller),
      copies_(parts.copies) {}

void WriteBehind::write_next() {
  const Stats& stats = context_.stats;
  const std::int64_t given_up = stats.evictions + stats.spills + stats.clean_spills;
  if (given_up == 0) {
    return;
  }
  const Bytes most(context_.budget.count() / kMostWritten);
  VictimPlan* const plan = context_.victim_plan;
  if (plan != nullptr && plan->copies()) {
    write_planned(most, [plan] { return plan->next_to_write(); });
    return;
  }
  if (context_.forecast != nullptr) {
    write_planned(most, [this] { return context_.forecast->next_to_write(); });
  }
  // The number of writes per call is limited: in a small tier one write may replace the one before,
  // and so on.
  for (std::size_t begun = 0;
       begun < kMostWrites && copies_.writes() < kMostWrites && given_up >= next_look_; ++begun) {
    const Bytes in_writing = copies_.in_writing();
    if (in_writing > most) {
      return;
    }
    const Bytes wanted =
        context_.shortfall(Bytes(context_.budget.count() / kWriteShare)) - in_writing;
    const ValueId next = wanted > Bytes(0) ? next_to_write(wanted) : ValueId();
    if (!next.valid() || !spiller_.begin_write(next)) {
      rest_ = std::min(2 * rest_, kMostRest);
      next_look_ = given_up + rest_;
    } else {
      rest_ = 1;
    }
  }
}

// Note [Writes known in advance] in spill_forecast.h.
void WriteBehind::write_planned(Bytes most, const std::function<ValueId()>& next_value) {
  while (copies_.writes() < kMostWrites && copies_.in_writing() <= most) {
    const ValueId next = next_value();
    if (!next.valid() || !spiller_.begin_write(next)) {
      return;
    }
  }
}

// Victims that the policy has named are hidden from it, so that it names others.
ValueId WriteBehind::next_to_write(Bytes wanted) {
  Hidden named(values_);
  while (wanted > Bytes(0) && named.count() < kMostVictims) {
    const Evictions victims = evictor_.would_evict({.size = Bytes(0), .shortfall = wanted});
    const auto found = std::find_if(victims.begin(), victims.end(), [&](const Eviction& each) {
      return each.spills && !context_.lineage[each.victim].clean();
    });
    if (found != victims.end()) {
      return found->victim;
    }
    if (victims.empty()) {
      break;
    }
    for (const Eviction& each : victims) {
      wanted -= context_.lineage[each.victim].size;
      named.hide(each.victim);
    }
  }
  return {};
}

}  // namespace recoup::detail
