#include "csrc/steps/evict/score_search.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

namespace recoup::detail {
namespace {

constexpr double kNeverFits = 1e18;
constexpr std::int8_t kFirst = -1;
constexpr std::int8_t kLast = 1;

// A step of the walk may raise the cost by up to this share, which falls to 0 during the walk.
constexpr double kTolerance = 0.03;
// A walk ends after this number of trials without a new best result.
constexpr int kPatience = 300;
// Limit of random changes until one has an effect on the score.
constexpr int kMostTries = 8;
// Shares of the search's work for a walk from each of the best two scores, and from the best result
// of these.
constexpr std::array kWalks = {0.3, 0.3, 0.4};
// With a spill tier the best scores are tried with these prices of copies, too, see StepScore.
constexpr std::size_t kPriced = 5;
constexpr std::array kWaitedParts = {0.5, 0.25};

double cost_of(const TrialResult& result, std::size_t ops) {
  if (result.fits) {
    return std::max(0.0, static_cast<double>((result.cost + result.closing).count()));
  }
  // The further the run came, the better.
  return kNeverFits * (2 - static_cast<double>(result.ops) / static_cast<double>(ops + 1));
}

// Whether two scores differ at most in what is known of the run before.
bool alike(const StepScore& a, const StepScore& b) {
  const auto none = [](std::int8_t priority) { return priority == 0; };
  const bool equal = a.priorities == b.priorities ||
                     (b.priorities.empty() && std::ranges::all_of(a.priorities, none));
  return equal && a.terms == b.terms && a.waited_part == b.waited_part;
}

bool better(const ScoreSearch::Found& a, const ScoreSearch::Found& b) { return a.cost < b.cost; }

}  // namespace

std::span<const OracleOptions> score_portfolio() {
  static constexpr std::array kScores = std::to_array<OracleOptions>({
      {.distance = 0, .age = 0.5, .ahead = false},  // score of policy recoup
      {.distance = 0, .age = 0, .ahead = false},    // score of policy msps
      {.distance = 0, .age = 0.25, .ahead = false},
      {.distance = 0, .age = 1, .ahead = false},
      {},
      {.distance = 0.5},
      {.distance = 0.25},
      {.distance = 0.75},
      {.distance = 0},
      {.distance = 0.5, .ancestors = 0.5},
      {.distance = 0.5, .ancestors = 2},
      {.size = 0.8, .distance = 0.5},
      {.size = 1.2, .distance = 0.5},
      {.cost = 0.8, .distance = 0.5},
      {.distance = 2},
      {.cost = 0.7, .ancestors = 0.7},
  });
  return kScores;
}

bool ScoreSearch::Found::fits() const { return cost < kNeverFits; }

ScoreSearch::Place ScoreSearch::visit(StepScore score, double most, Bytes budget) {
  TrialLimits limits{.budget = budget, .most = trial_.limits().most};
  if (most < static_cast<double>(limits.most.count())) {
    limits.most = Nanoseconds(static_cast<std::int64_t>(most));
  }
  TrialResult result = trial_.run(score, addresses_, limits);
  work_ -= result.work;
  return {.found = {.score = std::move(score), .cost = cost_of(result, trial_.ops().size())},
          .replays = std::move(result.replays),
          .done = std::move(result.done),
          .tier = std::move(result.tier)};
}

// With a spill tier a trial is repeated, now that it is known what can be written in advance.
ScoreSearch::Place ScoreSearch::visit_twice(const OracleOptions& terms, double most, Bytes budget) {
  StepScore score = before_;
  score.terms = terms;
  Place place = visit(std::move(score), most, budget);
  if (!trial_.has_tier() || !place.found.fits()) {
    return place;
  }
  return visit_again(place, std::nullopt, most, budget);
}

// `waited_part`: see StepScore.
ScoreSearch::Place ScoreSearch::visit_again(const Place& place, std::optional<double> waited_part,
                                            double most, Bytes budget) {
  StepScore score = place.found.score;
  score.waited_part = waited_part;
  score.writes = place.done;
  score.tier = place.tier;
  return visit(std::move(score), most, budget);
}

ScoreSearch::Found ScoreSearch::best_of_portfolio(Bytes budget) {
  Found best{.score = {}, .cost = 3 * kNeverFits};
  for (const OracleOptions& terms : score_portfolio()) {
    if (work_ <= 0) {
      break;
    }
    Place next = visit_twice(terms, best.cost, budget);
    if (better(next.found, best)) {
      best = std::move(next.found);
    }
  }
  return best;
}

std::vector<ScoreSearch::Found> ScoreSearch::run(std::span<const Found> others) {
  std::vector<Place> places;
  for (const OracleOptions& terms : score_portfolio()) {
    places.push_back(visit_twice(terms, kNeverFits, budget_));
  }
  for (const Found& other : others) {
    places.push_back(visit(other.score, kNeverFits, budget_));
  }
  const auto sort = [&] {
    std::stable_sort(places.begin(), places.end(),
                     [](const Place& a, const Place& b) { return better(a.found, b.found); });
  };
  sort();
  if (trial_.has_tier()) {
    std::vector<Place> cheaper;
    for (std::size_t k = 0; k < std::min(kPriced, places.size()) && places[k].found.fits(); ++k) {
      for (const double part : kWaitedParts) {
        cheaper.push_back(visit_again(places[k], part, kNeverFits, budget_));
      }
    }
    std::ranges::move(cheaper, std::back_inserter(places));
    sort();
  }
  std::vector<Found> trail{places.front().found};
  const std::int64_t work = work_;
  double share = 1;
  for (std::size_t i = 0; i < kWalks.size() && trail.back().fits(); ++i) {
    share -= kWalks[i];
    const auto until = static_cast<std::int64_t>(share * static_cast<double>(work));
    const bool again = i + 1 == kWalks.size();
    walk(again ? visit(trail.back().score, kNeverFits, budget_)
               : places[std::min(i, places.size() - 1)],
         until, trail);
  }
  return trail;
}

void ScoreSearch::walk(Place at, std::int64_t until, std::vector<Found>& trail) {
  const std::int64_t begun_with = work_;
  for (int vain = 0; work_ > until && begun_with > until && vain < kPatience; ++vain) {
    const double left =
        static_cast<double>(work_ - until) / static_cast<double>(begun_with - until);
    const double up = kTolerance * left * left * uniform() * uniform();
    const double most = at.found.cost * (1 + up);
    Place next = visit(changed(at), most, budget_);
    if (next.found.cost > most) {
      continue;
    }
    at = std::move(next);
    if (better(at.found, trail.back())) {
      trail.push_back(at.found);
      vain = 0;
    }
  }
}

// Most random changes of priorities that have the desired value already change nothing.
StepScore ScoreSearch::changed(const Place& place) {
  StepScore score = place.found.score;
  score.priorities.resize(trial_.ops().size());
  for (int n = 0; n < kMostTries && alike(score, place.found.score); ++n) {
    change(place, score);
  }
  if (trial_.has_tier()) {
    score.writes = place.done;
    score.tier = place.tier;
  }
  return score;
}

void ScoreSearch::change(const Place& place, StepScore& score) {
  if (trial_.has_tier() && uniform() < 0.1) {
    score.waited_part = 0.25 + 0.75 * uniform();
  }
  const double much = uniform();
  for (int n = much < 0.55 ? 1 : much < 0.8 ? 2 : much < 0.93 ? 3 : 6; n > 0; --n) {
    change_ops(place, score.priorities);
  }
  if (uniform() < 0.05) {
    const std::span<const OracleOptions> portfolio = score_portfolio();
    score.terms = portfolio[below(portfolio.size())];
  }
}

void ScoreSearch::change_ops(const Place& place, std::vector<std::int8_t>& priorities) {
  const auto either = [&] { return uniform() < 0.5 ? pick_replayed(place) : pick_kept(place); };
  const auto alike = [&](std::size_t op, const auto& change) {
    for (std::size_t other = 0; other < priorities.size(); ++other) {
      if (trial_.ops()[other].kind == trial_.ops()[op].kind) {
        change(other);
      }
    }
  };
  const double what = uniform();
  if (what < 0.35) {
    if (const auto op = pick_replayed(place)) {
      priorities[*op] = kLast;
    }
  } else if (what < 0.55) {
    if (const auto op = pick_kept(place)) {
      priorities[*op] = kFirst;
    }
  } else if (what < 0.70) {  // exchange it for another op of its kind
    if (const auto op = pick_replayed(place)) {
      std::vector<std::size_t> others;
      alike(*op, [&](std::size_t other) { others.push_back(other); });
      const std::size_t other = others[below(others.size())];
      priorities[other] = uniform() < 0.5 ? std::int8_t{0} : kFirst;
      priorities[*op] = kLast;
    }
  } else if (what < 0.9) {
    if (const auto op = either()) {
      priorities[*op] = 0;
    }
  } else if (const auto op = either()) {
    const auto priority = static_cast<std::int8_t>(static_cast<int>(below(3)) - 1);
    alike(*op, [&](std::size_t other) { priorities[other] = priority; });
  }
}

// A random op, with probability proportional to its weight.
template <class Weight>
std::optional<std::size_t> ScoreSearch::pick(const Weight& weight) {
  double sum = 0;
  for (std::size_t op = 0; op < trial_.ops().size(); ++op) {
    sum += weight(op);
  }
  double rest = uniform() * sum;
  std::optional<std::size_t> picked;
  for (std::size_t op = 0; op < trial_.ops().size() && rest >= 0; ++op) {
    if (const double part = weight(op); part > 0) {
      picked = op;
      rest -= part;
    }
  }
  return picked;
}

std::optional<std::size_t> ScoreSearch::pick_replayed(const Place& place) {
  return pick([&](std::size_t op) {
    const StepTrial::StepOp& each = trial_.ops()[op];
    return static_cast<double>(place.replays[op]) * static_cast<double>(each.cost.count());
  });
}

std::optional<std::size_t> ScoreSearch::pick_kept(const Place& place) {
  return pick([&](std::size_t op) {
    return place.replays[op] > 0 ? 0.0 : static_cast<double>(trial_.ops()[op].made.count());
  });
}

// The bias is limit / 2^53.
std::size_t ScoreSearch::below(std::size_t limit) {
  return std::min(limit - 1, static_cast<std::size_t>(uniform() * static_cast<double>(limit)));
}

}  // namespace recoup::detail
