#include "csrc/steps/evict/planner.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>
#include <vector>

#include "csrc/steps/evict/score_search.h"
#include "csrc/steps/evict/step_trial.h"

namespace recoup::detail {
namespace {

// A list must cost at most this share of what the policy alone costs.
constexpr double kWorthIt = 0.995;
// Number of candidates that are taken from the end of a search's trail, where the best ones are.
constexpr std::size_t kOfSearch = 4;
// Evictions that a list leaves to the policy are recorded in it, because the policy may decide
// otherwise if costs change a little. This is undone if it raises the cost by more than one part in
// kAsGood.
constexpr std::int64_t kAsGood = 500;
// Budgets, relative to the actual one, in which lists are made. A list for a smaller budget leaves
// room for fragmentation.
constexpr std::array kShares = {1.0, 0.97, 0.94};

class StepPlanner {
 public:
  StepPlanner(const RecordedStep& step, std::int64_t work, const std::atomic<bool>* stop)
      : trial_(step, stop), work_(work) {}

  std::optional<StepEvictions> plan(const EvictionList& before,
                                    const std::function<void(const StepEvictions&)>& on_first) {
    if (!trial_.possible(trial_.budget())) {
      return std::nullopt;
    }
    const TrialResult by_policy = trial_.run(EvictionList(), trial_.limits());
    const bool fits = by_policy.fits;
    best_.cost = fits ? by_policy.cost : trial_.limits().most;
    std::optional<StepEvictions> own = fits ? as_policy(by_policy) : std::nullopt;
    if (fits && by_policy.cost == Nanoseconds(0)) {
      return own;
    }
    if (own && on_first && before.size() == 0) {
      on_first(*own);
    }
    if (before.size() > 0) {
      try_list(before);
    }
    ScoreSearch by_bytes(trial_, Addresses::kIgnored, work_ / 2);
    const std::vector<ScoreSearch::Found> trail = by_bytes.run({});
    const auto best = std::span(trail).last(std::min(kOfSearch, trail.size()));
    ScoreSearch by_addresses(trial_, Addresses::kRecorded, work_ / 2);
    const std::vector<ScoreSearch::Found> better = by_addresses.run(best);
    for (const ScoreSearch::Found& found :
         std::span(better).last(std::min(kOfSearch, better.size()))) {
      try_score(found.score, 1.0);
    }
    for (const double share : kShares) {
      for (const ScoreSearch::Found& found : best) {
        try_score(found.score, share);
      }
      if (share < 1 && trial_.possible(part(share))) {
        try_score(by_bytes.best_of_portfolio(part(share)).score, share);
      }
    }
    const double limit = kWorthIt * static_cast<double>(by_policy.cost.count());
    if (!found_ || (fits && static_cast<double>(best_.cost.count()) > limit)) {
      return own;
    }
    return StepEvictions{
        .list = std::move(best_list_),
        .expected = cost_of(best_),
        .by_policy = fits ? std::optional(cost_of(by_policy)) : std::nullopt,
    };
  }

 private:
  [[nodiscard]] Bytes part(double share) const {
    return Bytes(static_cast<std::int64_t>(share * static_cast<double>(trial_.budget().count())));
  }

  // The evictions of the policy as a list; nullopt: there is none, or the list costs more.
  [[nodiscard]] std::optional<StepEvictions> as_policy(const TrialResult& by_policy) const {
    if (by_policy.done.size() == 0) {
      return std::nullopt;
    }
    TrialLimits limits = trial_.limits();
    limits.most = by_policy.cost + by_policy.cost / kAsGood;
    const TrialResult listed = trial_.run(by_policy.done, limits);
    if (!listed.fits) {
      return std::nullopt;
    }
    return StepEvictions{
        .list = by_policy.done, .expected = cost_of(listed), .by_policy = cost_of(by_policy)};
  }

  void try_score(const StepScore& score, double share) {
    if (!trial_.possible(part(share))) {
      return;
    }
    for (const Addresses addresses : {Addresses::kRecorded, Addresses::kIgnored}) {
      TrialLimits limits = trial_.limits();
      limits.budget = part(share);
      TrialResult made = trial_.run(score, addresses, limits);
      if (made.fits) {
        try_list(std::move(made.done));
      }
    }
  }

  void try_list(EvictionList list) {
    if (std::find(tried_.begin(), tried_.end(), list) != tried_.end()) {
      return;
    }
    TrialLimits limits = trial_.limits();
    limits.most = best_.cost;
    TrialResult result = trial_.run(list, limits);
    tried_.push_back(list);
    if (!result.fits || result.cost >= best_.cost) {
      return;
    }
    found_ = true;
    limits.most = result.cost + result.cost / kAsGood;
    TrialResult whole = trial_.run(result.done, limits);
    best_list_ = whole.fits ? result.done : std::move(list);
    best_ = std::move(whole.fits ? whole : result);
  }

  [[nodiscard]] StepCost cost_of(const TrialResult& result) const {
    StepCost cost{.total = result.cost, .replays = result.replays, .others = result.cost};
    for (std::size_t op = 0; op < result.replays.size(); ++op) {
      cost.others -= Nanoseconds(result.replays[op] * trial_.ops()[op].cost.count());
    }
    return cost;
  }

  StepTrial trial_;
  const std::int64_t work_;
  std::vector<EvictionList> tried_;
  bool found_ = false;
  EvictionList best_list_;
  TrialResult best_;  // result with the best list; before one is found, the cost to beat
};

}  // namespace

std::optional<StepEvictions> plan_step(const RecordedStep& step, const EvictionList& before,
                                       std::int64_t work, const std::atomic<bool>* stop,
                                       const std::function<void(const StepEvictions&)>& on_first) {
  try {
    validate(step.trace);
  } catch (const BadTrace&) {
    return std::nullopt;  // concurrent threads did something that a trace cannot express
  }
  return StepPlanner(step, work, stop).plan(before, on_first);
}

}  // namespace recoup::detail
