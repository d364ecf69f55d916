// Plans the eviction list that makes a step cheapest.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>

#include "csrc/steps/follow/eviction_list.h"
#include "csrc/steps/place/block_plan.h"
#include "csrc/steps/track/step_cost.h"
#include "csrc/steps/trial/cancelled.h"
#include "csrc/steps/trial/recorded_step.h"

namespace recoup::detail {

// A list of evictions. The engine's policy decides where the list names no victim.
struct StepEvictions {
  EvictionList list;
  BlockPlan blocks;  // empty: addresses are not planned
  StepCost expected;
  // Cost without the list; nullopt: the step does not fit without it.
  std::optional<StepCost> by_policy;
};

// Note [Lists and not scores]
// A search finds a score under which the step is cheap, see Note [Search]. Its result is stored as
// a list of the evictions, not as a score. With slightly different measured costs, or a slightly
// different state of the pool, a score may decide otherwise, but a list does not. Each list is
// tried under the conditions of its use: in the pool of the next run, and together with the policy.
//
// `work`: work limit of the searches, in units of about a third of a microsecond; a long step has
// more. The portfolio and the best lists are tried in any case. If no list is better than the
// policy by half a percent, the policy's own evictions are the list, so that it need not search for
// them in each step. Returns nullopt if the policy evicts nothing. `before`: an additional list to
// try. The result is deterministic. Throws PlanCancelled soon after `stop` becomes true; null:
// never. `on_first`: called with the policy's own evictions before the searches begin, unless
// `before` has a list. Empty: not called.
[[nodiscard]] std::optional<StepEvictions> plan_step(
    const RecordedStep& step, const EvictionList& before, std::int64_t work,
    const std::atomic<bool>* stop = nullptr,
    const std::function<void(const StepEvictions&)>& on_first = {});

}  // namespace recoup::detail
