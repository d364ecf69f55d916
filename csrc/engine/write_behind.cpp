#include "csrc/engine/write_behind.h"

#include <vector>

namespace recoup::detail {
namespace {

constexpr std::int64_t kShare = 8;        // of the budget, one part in so many is looked at
constexpr std::size_t kMostVictims = 16;  // looked at after one op

}  // namespace

WriteBehind::WriteBehind(Context& context, const Parts& parts)
    : context_(context),
      values_(parts.values),
      evictor_(parts.evictor),
      spiller_(parts.spiller),
      flights_(parts.flights) {}

void WriteBehind::write_next() {
  const Stats& stats = context_.stats;
  const std::int64_t given_up = stats.evictions + stats.spills + stats.clean_spills;
  if (given_up == 0 || given_up == nothing_at_ || flights_.writing()) {
    return;
  }
  const Bytes wanted = context_.shortfall(Bytes(context_.options.budget.count() / kShare));
  const ValueId next = wanted > Bytes(0) ? next_to_write(wanted) : ValueId();
  if (!next.valid() || !spiller_.begin_write(next)) {
    nothing_at_ = given_up;
  }
}

// Those that the policy names are hidden from it, so that it names others.
ValueId WriteBehind::next_to_write(Bytes wanted) {
  std::vector<ValueId> named;
  ValueId found;
  while (wanted > Bytes(0) && named.size() < kMostVictims && !found.valid()) {
    const std::vector<ValueId> victims =
        evictor_.would_evict({.size = Bytes(0), .shortfall = wanted});
    if (victims.empty()) {
      break;
    }
    for (const ValueId victim : victims) {
      const Value& value = context_.lineage[victim];
      wanted -= value.size;
      if (!found.valid() && !value.clean() && evictor_.would_spill(victim)) {
        found = victim;
      }
      values_.soft_pin(victim);
      named.push_back(victim);
    }
  }
  for (const ValueId each : named) {
    values_.soft_unpin(each);
  }
  return found;
}

}  // namespace recoup::detail
