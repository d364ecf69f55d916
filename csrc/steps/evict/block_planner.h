// BlockPlanner: plans the evictions of a step together with the addresses of its blocks.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "csrc/steps/evict/score_search.h"
#include "csrc/steps/place/step_layout.h"
#include "csrc/steps/trial/step_trial.h"

namespace recoup::detail {

// Note [A budget for addresses]
// Evictions are chosen as if addresses did not matter, and then a layout is searched for what is
// allocated with them. If there is none, the evictions are chosen in smaller budgets, from 99.5 %
// of the actual one on, and in two more if the layout found costs more than the evictions must. The
// cheapest plan is the result.
class BlockPlanner {
 public:
  struct Found {
    TrialResult result;  // with the plan, from the pool that the run before it leaves
    BlockPlan plan;
  };

  // The trial must outlive it.
  BlockPlanner(const StepTrial& trial, const std::atomic<bool>* stop)
      : trial_(trial), stop_(stop) {}

  // `scores`: under which the step is cheap without regard to addresses. `work`: limit for the
  // search of scores in each smaller budget, see ScoreSearch. nullopt: no layout was found, or the
  // step costs at least `most` with it.
  [[nodiscard]] std::optional<Found> plan(std::span<const ScoreSearch::Found> scores,
                                          std::int64_t work, Nanoseconds most);

 private:
  // A run without regard to addresses.
  struct Run {
    EvictionList list{};
    TierContent tier;  // when the run begins
    TrialBlocks blocks{};
    std::vector<std::uint32_t> evictions{};  // by life: number of entries of the list before it
    // The run has ended with these evictions.
    void take(EvictionList done);
  };
  [[nodiscard]] std::optional<Found> place(const StepScore& score, Bytes budget, Nanoseconds most);
  [[nodiscard]] std::optional<Run> run_by_bytes(const StepScore& score, const TrialLimits& limits);
  [[nodiscard]] std::optional<Found> place_early(const Run& lazy, const TrialLimits& limits);
  [[nodiscard]] std::optional<Found> place_run(const Run& run, Nanoseconds most);
  [[nodiscard]] StartingPool pool_of(const Run& run, std::span<const PlannedPlace> places) const;
  [[nodiscard]] BlockPlan plan_of(const TrialBlocks& blocks, std::span<const PlannedPlace> places,
                                  std::span<const std::uint32_t> evictions) const;
  [[nodiscard]] StartingPool pool_after(const Run& run, const StepBlocks& blocks,
                                        std::span<const PlannedPlace> places) const;
  void check() const;

  const StepTrial& trial_;
  const std::atomic<bool>* stop_;
};

}  // namespace recoup::detail
