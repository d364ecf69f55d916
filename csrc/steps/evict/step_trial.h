// StepTrial: simulates what a step costs with other evictions.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "csrc/steps/evict/eviction_list.h"
#include "csrc/steps/evict/recorded_step.h"

namespace recoup::detail {

// A score for evictions in a known step.
struct StepScore {
  OracleOptions terms;
  // By op of the step: Candidate::priority of all its results. Empty: 0 for all.
  std::vector<std::int8_t> priorities;
};

enum class Addresses : std::uint8_t {
  kIgnored,   // fragmentation does not occur
  kRecorded,  // as in the recorded step, or at its end if it repeats
};

struct TrialResult {
  bool fits = false;  // if false, the other fields cover the part that ran
  std::uint32_t ops = 0;
  Nanoseconds cost{0};                 // cost of replays and moves
  std::vector<std::uint32_t> replays;  // by op of the step
  EvictionList done;                   // evictions, and points at which blocks were moved
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
  // Runs with the list, with the policy where it names no victim, and with addresses.
  [[nodiscard]] TrialResult run(const EvictionList& list, const TrialLimits& limits) const;

  // An op of the step.
  struct StepOp {
    Nanoseconds cost{0};
    Bytes made{0};
    std::size_t kind = 0;  // equal for ops of the same name with results of the same sizes
  };
  [[nodiscard]] const std::vector<StepOp>& ops() const { return ops_; }
  [[nodiscard]] Bytes budget() const { return step_.options.budget; }
  // Whether this budget leaves bytes for the pool, next to what is charged outside it.
  [[nodiscard]] bool possible(Bytes budget) const;
  // Limits for the cost of replays and moves in any trial.
  [[nodiscard]] TrialLimits limits() const;

 private:
  [[nodiscard]] TrialResult run(const Options& options, const StepScore* score,
                                const EvictionList* list, Addresses addresses,
                                Nanoseconds most) const;

  const RecordedStep& step_;
  const std::atomic<bool>* stop_;
  std::vector<StepOp> ops_;
  Nanoseconds plain_cost_{0};
};

}  // namespace recoup::detail
