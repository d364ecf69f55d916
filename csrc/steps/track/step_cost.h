// StepCost: the planned cost of replays and moves in a step.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "recoup/types.h"

namespace recoup::detail {

// The price on the host of the policy's plans, as measured in steps of GPT-2 (2.2 ms for 2,217
// plans), and of searches for moves, for which it is an estimate. A price and no measurement, so
// that a simulation decides as the run does.
[[nodiscard]] constexpr Nanoseconds search_price(std::int64_t plans, std::int64_t searches) {
  return Nanoseconds(1'000 * plans + 20'000 * searches);
}

// A step with planned addresses may cost more by this share of the cost of its ops, because it does
// not depend on the state of the pool.
inline constexpr double kMoreWithPlaces = 0.01;

// Note [What was planned at costs of today]
// The learned costs of ops change by several percent from step to step. To compare a step with its
// plan, the planned number of replays of each op is multiplied by its current cost.
struct StepCost {
  Nanoseconds total{0};
  // Planned replays, by op of the step; ops beyond the end are not replayed.
  std::vector<std::uint32_t> replays;
  Nanoseconds others{0};  // the part of `total` that is not for these replays

  // The planned cost if the step's ops have these costs.
  [[nodiscard]] Nanoseconds at(std::span<const Nanoseconds> costs) const {
    Nanoseconds sum = others;
    for (std::size_t op = 0; op < std::min(replays.size(), costs.size()); ++op) {
      sum += Nanoseconds(replays[op] * costs[op].count());
    }
    return sum;
  }
  friend bool operator==(const StepCost&, const StepCost&) = default;
};

}  // namespace recoup::detail
