// ScoreSearch: finds scores under which a step is cheap.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include "csrc/steps/trial/step_trial.h"

namespace recoup::detail {

// The scores that a search starts with.
[[nodiscard]] std::span<const OracleOptions> score_portfolio();

// Note [Search]
// A search by bytes ignores addresses. Fragmentation depends on all earlier evictions, so small
// changes of them have large effects on it. The result of a search by bytes is the start of a
// search by addresses. No fixed score is the best for every net and budget, so all scores of a
// portfolio are tried. From the best ones a random walk continues. A step of the walk declares that
// all results of an op are evicted last (if it was replayed at a high cost) or first (if it was
// kept and is large). Small changes of scores find nothing that these steps do not find.
class ScoreSearch {
 public:
  struct Found {
    StepScore score;
    double cost = 0;  // nanoseconds, see TrialResult; if it does not fit, more than any step costs
    [[nodiscard]] bool fits() const;
  };

  // The trial must outlive it. `work`: limit for the work of trials, see TrialResult. run() tries
  // the portfolio in any case. `budget`: that of the trials of run().
  ScoreSearch(const StepTrial& trial, Addresses addresses, std::int64_t work)
      : ScoreSearch(trial, addresses, work, trial.budget()) {}
  ScoreSearch(const StepTrial& trial, Addresses addresses, std::int64_t work, Bytes budget)
      : trial_(trial), addresses_(addresses), budget_(budget), work_(work) {}

  // With a spill tier: a run of the step, which shows what can be written in advance.
  void begin_after(const TrialResult& run) {
    before_.writes = run.done;
    before_.tier = run.tier;
  }

  // Returns the best of the portfolio and of `others`, then the results of the walks, each better
  // than the one before.
  std::vector<Found> run(std::span<const Found> others);
  // The last results of run(), which are the best ones.
  [[nodiscard]] static std::span<const Found> best_of(const std::vector<Found>& trail) {
    constexpr std::size_t kBest = 4;
    return std::span(trail).last(std::min(kBest, trail.size()));
  }
  // The best of the portfolio in this budget.
  Found best_of_portfolio(Bytes budget);

 private:
  struct Place {  // current place of the walk
    Found found;
    std::vector<std::uint32_t> replays;
    EvictionList done;
    TierContent tier;  // see TrialResult
  };

  [[nodiscard]] Place visit(StepScore score, double most, Bytes budget);
  [[nodiscard]] Place visit_again(const Place& place, std::optional<double> waited_part,
                                  double most, Bytes budget);
  [[nodiscard]] Place visit_twice(const OracleOptions& terms, double most, Bytes budget);
  void walk(Place at, std::int64_t until, std::vector<Found>& trail);
  [[nodiscard]] StepScore changed(const Place& place);
  void change(const Place& place, StepScore& score);
  void change_ops(const Place& place, std::vector<std::int8_t>& priorities);

  template <class Weight>
  [[nodiscard]] std::optional<std::size_t> pick(const Weight& weight);
  [[nodiscard]] std::optional<std::size_t> pick_replayed(const Place& place);
  [[nodiscard]] std::optional<std::size_t> pick_kept(const Place& place);
  [[nodiscard]] double uniform() { return static_cast<double>(random_() >> 11) * 0x1p-53; }
  [[nodiscard]] std::size_t below(std::size_t limit);

  const StepTrial& trial_;
  const Addresses addresses_;
  const Bytes budget_;
  std::int64_t work_;
  StepScore before_;  // the writes and the tier of begin_after()
  std::mt19937_64 random_{12345};
};

}  // namespace recoup::detail
