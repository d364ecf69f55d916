// max-block and binary-block: the two simple planners of CANN's graph engine. A buffer takes the
// first block of its range of sizes that nobody uses at the time, or a new one. When all are placed
// every block shrinks to its largest tenant, and the blocks are laid out one after the other.
#include <bit>
#include <functional>
#include <queue>
#include <utility>

#include "csrc/plan/planner.h"

namespace recoup::detail {
namespace {

template <class T>
using MinHeap = std::priority_queue<T, std::vector<T>, std::greater<>>;

struct Block {
  Units size = 0;
  std::size_t range = 0;
};

// `range_of` numbers the range of a size, from 0 to below `ranges`.
template <class RangeOf>
Placement place_in_blocks(const PlanInput& input, std::size_t ranges, RangeOf range_of) {
  std::vector<Block> blocks;
  std::vector<std::size_t> block_of(input.items.size());
  std::vector<MinHeap<std::size_t>> free(ranges);      // blocks, the oldest first
  MinHeap<std::pair<std::int32_t, std::size_t>> busy;  // (until when, block)
  for (std::size_t i = 0; i < input.items.size(); ++i) {
    const PlanItem& item = input.items[i];
    for (; !busy.empty() && busy.top().first <= item.lower; busy.pop()) {
      const std::size_t block = busy.top().second;
      free[blocks[block].range].push(block);
    }
    const std::size_t range = range_of(item.size);
    if (free[range].empty()) {
      free[range].push(blocks.size());
      blocks.push_back({.size = 0, .range = range});
    }
    const std::size_t block = free[range].top();
    free[range].pop();
    blocks[block].size = std::max(blocks[block].size, item.size);
    block_of[i] = block;
    busy.emplace(item.upper, block);
  }

  Placement result;
  std::vector<Units> start;
  for (const Block& block : blocks) {
    start.push_back(result.size);
    result.size += block.size;
  }
  for (const std::size_t block : block_of) {
    result.offsets.push_back(start[block]);
  }
  return result;
}

}  // namespace

Placement place_max_block(const PlanInput& input) {
  return place_in_blocks(input, 1, [](Units) { return std::size_t{0}; });
}

// The lowest range ends at the power of two above the smallest size: 512 to 4096 bytes give the
// ranges up to 1024, 2048 and 4096.
Placement place_binary_block(const PlanInput& input) {
  Units smallest = input.items.empty() ? 1 : input.items.front().size;
  for (const PlanItem& item : input.items) {
    smallest = std::min(smallest, item.size);
  }
  const auto exponent = [](Units size) {  // of the smallest power of two that is >= size
    return static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(size) - 1));
  };
  const std::size_t lowest = exponent(smallest + 1);
  return place_in_blocks(input, 64,
                         [&](Units size) { return std::max(exponent(size), lowest) - lowest; });
}

}  // namespace recoup::detail
