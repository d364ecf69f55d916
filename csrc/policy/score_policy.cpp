#include "csrc/policy/score_policy.h"

#include <algorithm>
#include <cmath>

#include "csrc/base/check.h"
#include "csrc/policy/terms.h"

namespace recoup::detail {

bool ScorePolicy::Rank::operator<(const Rank& other) const {
  if (priority != other.priority) {
    return priority < other.priority;
  }
  if (score != other.score) {
    return score < other.score;
  }
  if (size != other.size) {
    return size > other.size;
  }
  return id < other.id;
}

ScorePolicy::Rank ScorePolicy::rank(const Candidate& candidate, double cost, Tick now) {
  const double value = score(candidate, cost, now);
  RECOUP_CHECK(!std::isnan(value), name(), " has no score for value ", candidate.id.index());
  return {candidate.priority, value, candidate.size, candidate.id};
}

ScorePolicy::Bound ScorePolicy::bound(const Candidate& candidate, Nanoseconds around, Tick now) {
  const double cost = nanoseconds(candidate.own_cost) + nanoseconds(around);
  return {rank(candidate, cost, now), cost, &candidate};
}

Victims ScorePolicy::do_plan(const PolicyView& view, const RoomRequest& /*request*/) {
  if (kinetic_) {
    return plan_in_order(view);
  }
  const Tick now = view.now();
  bounds_.clear();
  const std::optional<Neighborhood> kind = neighborhood();
  for (const Candidate& candidate : search_.shortlist(view, work_)) {
    const Nanoseconds around =
        kind == Neighborhood::kEquivalence ? candidate.equivalence_at_least : Nanoseconds(0);
    bounds_.push_back(bound(candidate, around, now));
  }
  if (bounds_.empty()) {
    return {};
  }
  if (!kind) {
    work_.scored += static_cast<std::int64_t>(bounds_.size());
    const auto first =
        std::min_element(bounds_.begin(), bounds_.end(),
                         [](const Bound& a, const Bound& b) { return a.rank < b.rank; });
    return plan_for(*first);
  }

  // The neighborhood is the expensive part of a score. The rank with a lower bound of its cost is a
  // lower bound of the rank. Candidates are taken in the order of these bounds, until a bound
  // cannot beat the best rank: no search computes fewer neighborhoods. This does not change the
  // result.
  std::optional<Bound> best;
  const auto later = [](const Bound& a, const Bound& b) { return b.rank < a.rank; };
  std::make_heap(bounds_.begin(), bounds_.end(), later);
  while (!bounds_.empty() && (!best || bounds_.front().rank < best->rank)) {
    const Candidate& candidate = *bounds_.front().candidate;
    const Bound full = bound(candidate, view.neighborhood_cost(candidate.id, *kind), now);
    ++work_.scored;
    if (!best || full.rank < best->rank) {
      best = full;
    }
    std::pop_heap(bounds_.begin(), bounds_.end(), later);
    bounds_.pop_back();
  }
  return plan_for(*best);
}

Victims ScorePolicy::plan_in_order(const PolicyView& view) {
  if (view.candidate_count() == 0) {
    return {};
  }
  work_.visited += order_.update(view, neighborhood(), ages_by_root());
  std::optional<Rank> first = first_in_order(view, small_filter_ ? smallest_kept(view) : Bytes(0));
  if (!first) {  // as in Search: possible if the mean is not exact
    first = first_in_order(view, Bytes(0));
  }
  return {.victims = {first->id}, .by = GetBack::kCheapest};
}

// Finds the first candidate if the candidates are ordered by their bounds: visits the winner of the
// tournament, and then each contender that lost to a visited one.
std::optional<ScorePolicy::Rank> ScorePolicy::first_in_order(const PolicyView& view,
                                                             Bytes smallest) {
  const Tick now = view.now();
  const Tournament& tournament = order_.tournament();
  const auto later = [&](Tournament::Node a, Tournament::Node b) {
    return goes_before(*tournament.winner(b), *tournament.winner(a), now);
  };
  std::optional<Rank> best;
  const auto may_win = [&](const Contender& contender) {
    const double bound = order_.score(contender, now);
    if (!best || bound < best->score * (1 - Tournament::kError)) {
      return true;
    }
    if (bound == 0) {  // no rounding is involved here, and there may be many of them
      return Rank{0, bound, contender.size, contender.id} < *best;
    }
    return bound <= best->score * (1 + Tournament::kError);
  };
  front_.assign(1, Tournament::kRoot);
  while (!front_.empty() && may_win(*tournament.winner(front_.front()))) {
    std::pop_heap(front_.begin(), front_.end(), later);
    const Tournament::Node node = front_.back();
    front_.pop_back();
    const Contender contender = *tournament.winner(node);
    tournament.for_each_loser(node, [&](Tournament::Node loser) {
      ++work_.visited;
      front_.push_back(loser);
      std::push_heap(front_.begin(), front_.end(), later);
    });
    if (contender.size < smallest) {
      ++work_.filtered;
      continue;
    }
    const Candidate candidate = order_.look_at(view, contender);
    const std::optional<Neighborhood> kind = neighborhood();
    const Nanoseconds around = kind ? view.neighborhood_cost(candidate.id, *kind) : Nanoseconds(0);
    const Rank full = rank(candidate, nanoseconds(candidate.own_cost) + nanoseconds(around), now);
    ++work_.scored;
    if (!best || full < *best) {
      best = full;
    }
    order_.learn(view, contender);
  }
  return best;
}

}  // namespace recoup::detail
