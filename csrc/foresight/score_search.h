// ScoreSearch: orders of eviction under which a step costs little.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include "csrc/foresight/step_trial.h"

namespace recoup::detail {

// The scores that a search begins with.
[[nodiscard]] std::span<const OracleOptions> score_portfolio();

// Note [Search]
// A search by bytes ignores addresses: where free memory lies in pieces depends on every eviction
// before, so that little changes have large effects. What it finds is where a search by addresses
// begins. No fixed score is the best for every net and budget, so each of a portfolio is
// tried. From the best ones a random walk goes on, whose steps say of an op that all it makes goes
// last (it was replayed, and that cost much), or first (it was kept, and is large). Small changes
// of scores find nothing that these do not.
class ScoreSearch {
 public:
  struct Found {
    StepScore score;
    double cost = 0;  // nanoseconds, see TrialResult; more than any step costs when it does not fit
    [[nodiscard]] bool fits() const;
  };

  // The trial must outlive it. `work`: how much trials may do, see TrialResult. The portfolio is
  // tried in any case.
  ScoreSearch(const StepTrial& trial, Addresses addresses, std::int64_t work)
      : trial_(trial), addresses_(addresses), work_(work) {}

  // The best of the portfolio and of others to begin with, then what the walk found, each better
  // than what stands before it.
  std::vector<Found> run(std::span<const Found> others);
  // What is best of the portfolio in that budget.
  Found best_of_portfolio(Bytes budget);

 private:
  struct Place {  // where the walk is
    Found found;
    std::vector<std::uint32_t> replays;
  };

  [[nodiscard]] Place visit(StepScore score, double most, Bytes budget);
  void walk(Place at, std::int64_t until, std::vector<Found>& trail);
  [[nodiscard]] StepScore changed(const Place& place);
  void change_ops(const Place& place, std::vector<std::int8_t>& priorities);

  template <class Weight>
  [[nodiscard]] std::optional<std::size_t> pick(const Weight& weight);
  [[nodiscard]] std::optional<std::size_t> pick_replayed(const Place& place);
  [[nodiscard]] std::optional<std::size_t> pick_kept(const Place& place);
  [[nodiscard]] double uniform() { return static_cast<double>(random_() >> 11) * 0x1p-53; }
  [[nodiscard]] std::size_t below(std::size_t limit);

  const StepTrial& trial_;
  const Addresses addresses_;
  std::int64_t work_;
  std::mt19937_64 random_{12345};
};

}  // namespace recoup::detail
