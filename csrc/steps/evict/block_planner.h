// BlockPlanner: plans the evictions of a step together with the addresses of its blocks.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>

#include "csrc/steps/evict/score_search.h"
#include "csrc/steps/evict/step_trial.h"
#include "csrc/steps/place/step_layout.h"

namespace recoup::detail {

// Note [A budget for addresses]
// Evictions are chosen as if addresses did not matter, and then a layout is searched for what is
// allocated with them. If there is none, the evictions are chosen in a budget that is smaller by
// one percent, and so on. The cheapest plan of the first budget with layouts is the result.
class BlockPlanner {
 public:
  struct Found {
    TrialResult result;  // with the plan, from the pool that it expects
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
  [[nodiscard]] std::optional<Found> place(const StepScore& score, Bytes budget, Nanoseconds most);
  [[nodiscard]] Nanoseconds cost_of_alternating(const StepBlocks& blocks,
                                                std::span<const PlannedPlace> places) const;
  void check() const;

  const StepTrial& trial_;
  const std::atomic<bool>* stop_;
};

}  // namespace recoup::detail
