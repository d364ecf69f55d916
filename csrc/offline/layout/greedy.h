// Greedy placement in a given order, the base of greedy-by-size and of search's first layouts.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "csrc/offline/layout/planner.h"

namespace recoup::detail {

// Each item at the lowest offset that is free when its turn comes. `order` holds every item once.
Placement place_in_order(const PlanInput& input, std::span<const std::uint32_t> order);

// Large to small; of equals the one that lives longer first.
std::vector<std::uint32_t> order_by_size(std::span<const PlanItem> items);

}  // namespace recoup::detail
