// The list of evictions that makes a step cheapest.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "csrc/foresight/cancelled.h"
#include "csrc/foresight/eviction_list.h"
#include "csrc/foresight/recorded_step.h"
#include "csrc/foresight/step_cost.h"

namespace recoup::detail {

// Beside the engine's policy, which decides where the list names nothing.
struct StepEvictions {
  EvictionList list;
  StepCost expected;
  std::optional<StepCost> by_policy;  // none: without the list the step does not run
};

// Note [Lists and not scores]
// A search finds a score under which the step is cheap, see Note [Search]. What is kept of
// it is what it evicted: under costs that are measured a little differently, or in memory that lies
// a little differently, a score may decide on something else, and a list does not. Each list is
// tried where it will be used: at the addresses where the step began, beside the policy.
//
// `work`: of the searches, about half a microsecond each; the portfolio, and the best lists, are
// tried in any case. Returns nothing when no list is better than the policy by half a percent.
// `before`: a list to be tried, too. The same in every call. Throws PlanCancelled soon after `stop`
// says so; null: never.
[[nodiscard]] std::optional<StepEvictions> plan_step(const RecordedStep& step,
                                                     const EvictionList& before, std::int64_t work,
                                                     const std::atomic<bool>* stop = nullptr);

}  // namespace recoup::detail
