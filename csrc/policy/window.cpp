#include "csrc/policy/window.h"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace recoup::detail {

void WindowSearch::scale(std::span<const double> costs, std::span<PairCost> pairs) {
  double most = 0;
  for (double cost : costs) {
    most = std::isfinite(cost) ? std::max(most, cost) : most;
  }
  for (const PairCost& pair : pairs) {
    most = std::max(most, pair.cost);
  }
  // Every cost is below 2^101, so a sum of 2^27 costs does not overflow.
  const int shift = most > 0 ? 100 - std::ilogb(most) : 0;
  const auto scaled = [shift](double cost) { return static_cast<Cost>(std::scalbn(cost, shift)); };
  costs_.clear();
  for (double cost : costs) {
    costs_.push_back(std::isfinite(cost) ? scaled(cost) : 0);
  }
  by_low_.clear();
  for (const PairCost& pair : pairs) {
    by_low_.push_back({.low = pair.low, .high = pair.high, .cost = scaled(pair.cost)});
  }
  by_high_ = by_low_;
  std::sort(by_low_.begin(), by_low_.end(),
            [](const Pair& a, const Pair& b) { return a.low < b.low; });
  std::sort(by_high_.begin(), by_high_.end(),
            [](const Pair& a, const Pair& b) { return a.high < b.high; });
}

std::optional<Window> WindowSearch::cheapest(std::span<const PoolBlock> blocks,
                                             std::span<const double> costs,
                                             std::span<PairCost> pairs,
                                             const RoomRequest& request) {
  scale(costs, pairs);
  const std::int64_t size = request.size.count();
  const std::int64_t shortfall = std::max<std::int64_t>(request.shortfall.count(), 1);
  std::size_t begin = 0;
  // 128 bits: candidates may have up to 2^62 bytes each, although no pool holds two of these.
  __int128 bytes = 0;      // bytes of the window
  __int128 evictable = 0;  // bytes of its candidates
  Cost cost = 0;
  auto entering = by_high_.begin();
  auto leaving = by_low_.begin();
  std::optional<Window> best;
  Cost best_cost = 0;
  __int128 best_bytes = 0;

  const auto candidate_bytes = [](const PoolBlock& block) {
    return block.candidate == PoolBlock::kNone ? 0 : block.size.count();
  };
  const auto restart = [&](std::size_t at) {
    begin = at;
    bytes = evictable = 0;
    cost = 0;
  };
  for (std::size_t last = 0; last < blocks.size(); ++last) {
    const PoolBlock& block = blocks[last];
    const bool fixed = !std::isfinite(costs[last]);
    if (fixed || block.starts_segment) {
      restart(fixed ? last + 1 : last);
    }
    if (fixed) {
      continue;
    }
    bytes += block.size.count();
    evictable += candidate_bytes(block);
    cost += costs_[last];
    for (; entering != by_high_.end() && entering->high <= last; ++entering) {
      cost += entering->high == last && entering->low >= begin ? entering->cost : 0;
    }
    while (bytes - blocks[begin].size.count() >= size &&
           evictable - candidate_bytes(blocks[begin]) >= shortfall) {
      bytes -= blocks[begin].size.count();
      evictable -= candidate_bytes(blocks[begin]);
      cost -= costs_[begin];
      for (; leaving != by_low_.end() && leaving->low <= begin; ++leaving) {
        cost -= leaving->low == begin && leaving->high <= last ? leaving->cost : 0;
      }
      ++begin;
    }
    if (bytes >= size && evictable >= shortfall &&
        (!best || std::tie(cost, bytes) < std::tie(best_cost, best_bytes))) {
      best = {.begin = begin, .end = last + 1};
      best_cost = cost;
      best_bytes = bytes;
    }
  }
  return best;
}

}  // namespace recoup::detail
