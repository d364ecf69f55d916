// Greedy placement in a given order, the base of greedy-by-size and of search's first layouts.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "csrc/offline/layout/planner.h"

namespace recoup::detail {

// Each item at the lowest offset that is free when its turn comes. `order` holds every item once.
// Nothing when that takes too long.
std::optional<LayoutPlacement> place_in_order(const PlanInput& input,
                                              std::span<const std::uint32_t> order,
                                              const Deadline& deadline);

// Large to small; of equals the one that lives longer first, or the one that comes first.
enum class Equals : std::uint8_t { kLongestFirst, kAsTheyCome };
std::vector<std::uint32_t> order_by_size(std::span<const PlanItem> items,
                                         Equals equals = Equals::kLongestFirst);

}  // namespace recoup::detail
