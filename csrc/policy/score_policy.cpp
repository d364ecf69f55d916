#include "csrc/policy/score_policy.h"

#include <algorithm>
#include <cmath>

#include "csrc/base/check.h"
#include "csrc/policy/terms.h"

namespace recoup::detail {

bool ScorePolicy::Rank::operator<(const Rank& other) const {
  if (score != other.score) {
    return score < other.score;
  }
  if (candidate->size != other.candidate->size) {
    return candidate->size > other.candidate->size;
  }
  return candidate->id < other.candidate->id;
}

ScorePolicy::Rank ScorePolicy::rank(const Candidate& candidate, double cost, Tick now) {
  const double value = score(candidate, cost, now);
  RECOUP_CHECK(!std::isnan(value), name(), " has no score for value ", candidate.id.index());
  return {value, &candidate};
}

EvictionPlan ScorePolicy::do_plan(const PolicyView& view, const RoomRequest& /*request*/) {
  const Tick now = view.now();
  ranks_.clear();
  const std::optional<Neighborhood> kind = neighborhood();
  for (const Candidate& candidate : search_.shortlist(view, work_)) {
    const Nanoseconds around =
        kind == Neighborhood::kEquivalence ? candidate.equivalence_at_least : Nanoseconds(0);
    ranks_.push_back(rank(candidate, nanoseconds(candidate.own_cost) + nanoseconds(around), now));
  }
  if (ranks_.empty()) {
    return {};
  }
  if (!kind) {
    work_.scored += static_cast<std::int64_t>(ranks_.size());
    return {.victims = {std::min_element(ranks_.begin(), ranks_.end())->candidate->id}};
  }

  // The neighborhood is the dear part of a score, and the rank with the least that it may cost is a
  // lower bound. In order of that bound, stop at the first that cannot beat the best: no search
  // asks for fewer neighborhoods. Perf only: asking for all of them changes no result.
  std::optional<Rank> best;
  const auto later = [](const Rank& a, const Rank& b) { return b < a; };
  std::make_heap(ranks_.begin(), ranks_.end(), later);
  while (!ranks_.empty() && (!best || ranks_.front() < *best)) {
    const Candidate& candidate = *ranks_.front().candidate;
    const double around = nanoseconds(view.neighborhood_cost(candidate.id, *kind));
    const Rank full = rank(candidate, nanoseconds(candidate.own_cost) + around, now);
    ++work_.scored;
    if (!best || full < *best) {
      best = full;
    }
    std::pop_heap(ranks_.begin(), ranks_.end(), later);
    ranks_.pop_back();
  }
  return {.victims = {best->candidate->id}};
}

}  // namespace recoup::detail
