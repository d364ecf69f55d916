// StepTrial: simulates what a step costs with other evictions.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "csrc/steps/follow/eviction_list.h"
#include "csrc/steps/place/block_plan.h"
#include "csrc/steps/trial/director.h"
#include "csrc/steps/trial/recorded_step.h"
#include "csrc/steps/trial/step_uses.h"

namespace recoup::detail {

enum class Addresses : std::uint8_t {
  kIgnored,   // fragmentation does not occur
  kRecorded,  // as in the recorded step, or at its end if it repeats
};

struct TrialResult {
  bool fits = false;  // if false, the other fields cover the part that ran
  std::uint32_t ops = 0;
  Nanoseconds cost{0};                 // cost of replays, moves and copies
  Nanoseconds closing{0};              // price of what the next run of the step needs more; if
                                       // below 0, less
  std::vector<std::uint32_t> replays;  // by op of the step
  EvictionList done;                   // evictions, and points at which blocks were moved
  TierContent tier;                    // as StepScore::tier, when the step's next run begins
  std::uint32_t elsewhere = 0;         // number of blocks that were not allocated as planned
  Nanoseconds searches{0};             // the price of searches, see search_price
  std::int64_t work = 0;  // number of ops, replays, and candidates that a policy looked at
};

struct TrialLimits {
  Bytes budget;
  Nanoseconds most;  // cost limit: a run that exceeds it does not fit
};

class StepTrial {
 public:
  // The step must outlive it.
  StepTrial(const RecordedStep& step, const std::atomic<bool>* stop);

  // ---- both functions throw PlanCancelled when they are stopped ----

  [[nodiscard]] TrialResult run(const StepScore& score, Addresses addresses,
                                const TrialLimits& limits) const;
  // Runs without regard to addresses from the pool of the next run, and tells what it allocates.
  [[nodiscard]] TrialResult run(const StepScore& score, const TrialLimits& limits,
                                TrialBlocks& blocks) const;
  // Runs with the list and the plan of blocks, from a pool that is as the plan expects. `blocks`:
  // the pool has more addresses, and what it allocates is returned, except TrialBlocks::early.
  [[nodiscard]] TrialResult run(const EvictionList& list, const BlockPlan& plan,
                                const StartingPool& pool, const TrialLimits& limits,
                                TrialBlocks* blocks = nullptr) const;
  // Runs with the list, with the policy where it names no victim, and with addresses.
  [[nodiscard]] TrialResult run(const EvictionList& list, const TrialLimits& limits) const;

  // An op of the step.
  struct StepOp {
    Nanoseconds cost{0};
    Bytes made{0};
    std::size_t kind = 0;  // equal for ops of the same name with results of the same sizes
  };
  [[nodiscard]] const std::vector<StepOp>& ops() const { return ops_; }
  [[nodiscard]] bool has_tier() const { return step_.options.spill > Bytes(0); }
  [[nodiscard]] const RecordedStep& step() const { return step_; }
  [[nodiscard]] Bytes budget() const { return step_.options.budget; }
  // Whether this budget leaves bytes for the pool, next to what is charged outside it.
  [[nodiscard]] bool possible(Bytes budget) const;
  [[nodiscard]] Nanoseconds plain_cost() const { return plain_cost_; }
  // Limits for the cost of replays and moves in any trial.
  [[nodiscard]] TrialLimits limits() const;

 private:
  struct Setup {
    Options options;
    const StartingPool* pool = nullptr;
    const StepScore* score = nullptr;
    const EvictionList* list = nullptr;
    const BlockPlan* plan = nullptr;
    Nanoseconds most{0};
    TrialBlocks* blocks = nullptr;
  };
  [[nodiscard]] TrialResult run(const Setup& setup) const;
  void take_end(const Engine& engine, const Director& director, TrialResult& result) const;
  [[nodiscard]] Nanoseconds cost_of_closing(const TierContent& start, const TierContent& end,
                                            const Engine& engine) const;
  [[nodiscard]] Options options_for(const StepScore& score, Bytes budget) const;

  const RecordedStep& step_;
  const std::atomic<bool>* stop_;
  std::vector<StepOp> ops_;
  StepUses uses_;
  Nanoseconds plain_cost_{0};
};

}  // namespace recoup::detail
