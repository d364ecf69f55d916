// Greedy placement in a given order: the base of greedy-by-size and of the first layouts of search.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "csrc/layout/items.h"

namespace recoup::detail {

// Places the items one by one, each at its lowest free offset. `order` holds every item once.
// Returns nullopt if the deadline passes.
RECOUP_API std::optional<LayoutPlacement> place_in_order(const LayoutInput& input,
                                                         std::span<const std::uint32_t> order,
                                                         const Deadline& deadline);

// Sorts by size, largest first. Items of equal size: longest life first, or in input order.
enum class Equals : std::uint8_t { kLongestFirst, kInInputOrder };
RECOUP_API std::vector<std::uint32_t> order_by_size(std::span<const LayoutItem> items,
                                                    Equals equals = Equals::kLongestFirst);

}  // namespace recoup::detail
