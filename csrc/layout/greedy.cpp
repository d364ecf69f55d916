// greedy-by-size: from large to small, each item at the lowest free place (Pisarchyk and Lee,
// "Efficient Memory Management for Deep Neural Net Inference", 2020).
#include "csrc/layout/greedy.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "csrc/layout/placed.h"

namespace recoup::detail {

Units height(std::span<const LayoutItem> items, std::span<const Units> offsets) {
  Units top = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    top = std::max(top, offsets[i] + items[i].size);
  }
  return top;
}

std::optional<LayoutPlacement> place_in_order(const LayoutInput& input,
                                              std::span<const std::uint32_t> order,
                                              const Deadline& deadline) {
  PlacedRows placed;
  Overtime overtime(deadline);
  LayoutPlacement result;
  result.offsets.resize(input.items.size());
  for (const std::uint32_t i : order) {
    if (overtime.now()) {
      return std::nullopt;
    }
    const LayoutItem& item = input.items[i];
    result.offsets[i] = placed.lowest_place(item);
    placed.insert(item, result.offsets[i]);
  }
  result.size = height(input.items, result.offsets);
  return result;
}

std::vector<std::uint32_t> order_by_size(std::span<const LayoutItem> items, Equals equals) {
  const auto width = [&](std::uint32_t i) {
    return equals == Equals::kLongestFirst ? items[i].width() : 0;
  };
  std::vector<std::uint32_t> order(items.size());
  std::iota(order.begin(), order.end(), 0U);
  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return std::tuple(-items[a].size, -width(a), a) < std::tuple(-items[b].size, -width(b), b);
  });
  return order;
}

}  // namespace recoup::detail
