#include "csrc/steps/evict/planner.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>
#include <vector>

#include "csrc/steps/evict/block_planner.h"
#include "csrc/steps/evict/score_search.h"
#include "csrc/steps/trial/step_trial.h"

namespace recoup::detail {
namespace {

// A list must cost at most this share of what the policy alone costs.
constexpr double kWorthIt = 0.995;
// Evictions that a list leaves to the policy are recorded in it, because the policy may decide
// otherwise if costs change a little. This is undone if it raises the cost by more than one part in
// kAsGood.
constexpr std::int64_t kAsGood = 500;
// The search for scores in each smaller budget has one part in this of the work.
constexpr std::int64_t kSmallerBudgets = 4;
// With planned addresses, lists are not searched if the step costs at most this multiple of what it
// costs without regard to addresses. With a spill tier they are not if it costs no more than the
// policy's step or the list before it, with their searches.
constexpr double kAsGoodWithPlaces = 1.03;
// The work limit of a long step: one unit for each this number of nanoseconds of the step. A plan
// then takes about as long as the step.
constexpr std::int64_t kStepForWork = 700;
// Budgets, relative to the actual one, in which lists are made. A list for a smaller budget leaves
// room for fragmentation.
constexpr std::array kShares = {1.0, 0.97, 0.94};

class StepPlanner {
 public:
  StepPlanner(const RecordedStep& step, std::int64_t work, const std::atomic<bool>* stop)
      : trial_(step, stop),
        blocks_(trial_, stop),
        work_(std::max(work, trial_.plain_cost().count() / kStepForWork)) {}

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
    if (fits && trial_.has_tier()) {
      by_bytes.begin_after(by_policy);
    }
    const std::vector<ScoreSearch::Found> trail = by_bytes.run({});
    const std::span<const ScoreSearch::Found> best = ScoreSearch::best_of(trail);
    std::optional<BlockPlanner::Found> placed =
        blocks_.plan(best, work_ / kSmallerBudgets, trial_.limits().most);
    const double least = best.empty() ? 0 : best.back().cost;
    const auto most = [&] {
      const TrialResult& other = found_ || !fits ? best_ : by_policy;
      return in_ns(other.cost + other.searches) + kMoreWithPlaces * in_ns(trial_.plain_cost());
    };
    const double enough = trial_.has_tier() ? most() : kAsGoodWithPlaces * least;
    if (!placed || in_ns(placed->result.cost) > enough) {
      search_lists(by_bytes, best);
    }
    if (placed && in_ns(placed->result.cost) <= most()) {
      return StepEvictions{.list = placed->result.done,
                           .blocks = std::move(placed->plan),
                           .expected = cost_of(placed->result),
                           .by_policy = fits ? std::optional(cost_of(by_policy)) : std::nullopt};
    }
    if (!found_ || (fits && in_ns(best_.cost) > kWorthIt * in_ns(by_policy.cost))) {
      return own;
    }
    return StepEvictions{
        .list = std::move(best_list_),
        .blocks = {},
        .expected = cost_of(best_),
        .by_policy = fits ? std::optional(cost_of(by_policy)) : std::nullopt,
    };
  }

 private:
  [[nodiscard]] static double in_ns(Nanoseconds cost) { return static_cast<double>(cost.count()); }

  // Tries lists that are made with addresses or in smaller budgets, starting from those of `best`,
  // which are made without.
  void search_lists(ScoreSearch& by_bytes, std::span<const ScoreSearch::Found> best) {
    ScoreSearch by_addresses(trial_, Addresses::kRecorded, work_ / 2);
    const std::vector<ScoreSearch::Found> better = by_addresses.run(best);
    for (const ScoreSearch::Found& found : ScoreSearch::best_of(better)) {
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
  }

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
    return StepEvictions{.list = by_policy.done,
                         .blocks = {},
                         .expected = cost_of(listed),
                         .by_policy = cost_of(by_policy)};
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
  BlockPlanner blocks_;
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
