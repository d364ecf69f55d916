// StepTrial: what a step would cost if other values were evicted in it.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "csrc/foresight/eviction_list.h"
#include "csrc/foresight/recorded_step.h"

namespace recoup::detail {

// An order of eviction that knows the step.
struct StepScore {
  OracleOptions terms;
  // By op of the step: as Candidate::priority, of all that it makes. Empty: none has one.
  std::vector<std::int8_t> priorities;
};

enum class Addresses : std::uint8_t {
  kIgnored,   // free memory is never in pieces
  kRecorded,  // as they were when the step was recorded
};

struct TrialResult {
  bool fits = false;  // else the rest tells of it as far as it went
  std::uint32_t ops = 0;
  Nanoseconds cost{0};                 // of replays and of moves
  std::vector<std::uint32_t> replays;  // by op of the step
  EvictionList done;                   // what was evicted, and where blocks were moved
  std::int64_t work = 0;               // ops, replays, and candidates that a policy looked at
};

struct TrialLimits {
  Bytes budget;
  Nanoseconds most;  // of the cost: what takes more does not fit
};

class StepTrial {
 public:
  // The step must outlive this.
  StepTrial(const RecordedStep& step, const std::atomic<bool>* stop);

  // ---- both throw PlanCancelled when they are stopped ----

  [[nodiscard]] TrialResult run(const StepScore& score, Addresses addresses,
                                const TrialLimits& limits) const;
  // The list, and the policy where it names nothing, at addresses.
  [[nodiscard]] TrialResult run(const EvictionList& list, const TrialLimits& limits) const;

  // An op of the step.
  struct StepOp {
    Nanoseconds cost{0};
    Bytes made{0};
    std::size_t kind = 0;  // the same for ops of one name that make the same sizes
  };
  [[nodiscard]] const std::vector<StepOp>& ops() const { return ops_; }
  [[nodiscard]] Bytes budget() const { return step_.options.budget; }
  // Whether an engine can have it, beside what is there.
  [[nodiscard]] bool possible(Bytes budget) const;
  // What replays and moves may cost at all.
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
