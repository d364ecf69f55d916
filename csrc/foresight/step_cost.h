// StepCost: what replays and moves are to cost in a step.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "recoup/types.h"

namespace recoup::detail {

// Note [What was planned at costs of today]
// What ops are believed to cost changes by several percent from step to step. Whether a step did as
// planned is asked at the costs that it had: so often was each of its ops to be replayed.
struct StepCost {
  Nanoseconds total{0};
  std::vector<std::uint32_t> replays;  // by op of the step; shorter: the rest is not replayed
  Nanoseconds others{0};               // what of `total` is not for these

  // When the step's ops cost this.
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
