#include "csrc/policy/kinetic.h"

#include <cmath>

#include "csrc/base/check.h"

namespace recoup::detail {

std::int64_t KineticOrder::update(const PolicyView& view, std::optional<Neighborhood> kind,
                                  bool root) {
  const std::int64_t before = tournament_.looks();
  kind_ = kind;
  root_ = root;
  for (ValueId id : view.changes()) {
    if (const auto index = view.index_of(id)) {
      enter(view.candidate(*index));
    } else {
      tournament_.leave(id);
    }
  }
  tournament_.play(view.now());
  return tournament_.looks() - before;
}

double KineticOrder::score(const Contender& contender, Tick now) const {
  const double score = contender.score(now);
  return root_ ? std::sqrt(score) : score;
}

Candidate KineticOrder::look_at(const PolicyView& view, const Contender& contender) {
  const auto index = view.index_of(contender.id);
  RECOUP_CHECK(index.has_value(), "value ", contender.id.index(), " is no candidate any more");
  const Candidate candidate = view.candidate(*index);
  RECOUP_CHECK(candidate.id == contender.id && candidate.size == contender.size &&
                   candidate.last_access == contender.last_access,
               "a change of value ", contender.id.index(), " was not reported");
  return candidate;
}

void KineticOrder::learn(const PolicyView& view, const Contender& contender) {
  if (kind_) {
    enter(look_at(view, contender));
  }
}

void KineticOrder::enter(const Candidate& candidate) {
  Nanoseconds around{};
  if (kind_) {
    around = kind_ == Neighborhood::kEquivalence ? candidate.equivalence_at_least
                                                 : candidate.walked_at_least;
  }
  // Both are below 2^63, so the sum fits.
  const std::uint64_t cost = static_cast<std::uint64_t>(candidate.own_cost.count()) +
                             static_cast<std::uint64_t>(around.count());
  const double price = static_cast<double>(cost) / static_cast<double>(candidate.size.count());
  tournament_.enter({.id = candidate.id,
                     .size = candidate.size,
                     .price = root_ ? price * price : price,
                     .last_access = candidate.last_access});
}

}  // namespace recoup::detail
