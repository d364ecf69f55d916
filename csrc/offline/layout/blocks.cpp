// max-block and binary-block: the two simple planners of CANN's graph engine. A buffer takes the
// first block of its size range that is unused at its birth, or a new one. When all buffers are
// placed, every block shrinks to its largest buffer, and the blocks are laid out one after the
// other.
#include <algorithm>
#include <bit>

#include "csrc/offline/layout/free_blocks.h"

namespace recoup::detail {
namespace {

// `range_of` maps a size to the index of its range, from 0 to `ranges` - 1.
template <class RangeOf>
LayoutPlacement place_in_blocks(const LayoutInput& input, std::size_t ranges, RangeOf range_of) {
  std::vector<Units> size;  // by block
  std::vector<std::size_t> block_of;
  std::vector<FreeBlocks> free(ranges);
  for (const LayoutItem& item : input.items) {
    const std::size_t block = free[range_of(item.size)].take(item, size.size());
    size.resize(std::max(size.size(), block + 1));
    size[block] = std::max(size[block], item.size);
    block_of.push_back(block);
  }

  LayoutPlacement result;
  std::vector<Units> start;
  for (const Units units : size) {
    start.push_back(result.size);
    result.size += units;
  }
  for (const std::size_t block : block_of) {
    result.offsets.push_back(start[block]);
  }
  return result;
}

}  // namespace

LayoutPlacement place_max_block(const LayoutInput& input) {
  return place_in_blocks(input, 1, [](Units) { return std::size_t{0}; });
}

// The lowest range ends at the power of two above the smallest size: sizes from 512 to 4096 bytes
// give the ranges up to 1024, 2048 and 4096.
LayoutPlacement place_binary_block(const LayoutInput& input) {
  Units smallest = input.items.empty() ? 1 : input.items.front().size;
  for (const LayoutItem& item : input.items) {
    smallest = std::min(smallest, item.size);
  }
  const auto exponent = [](Units size) {  // log2 of the smallest power of two that is >= size
    return static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(size) - 1));
  };
  const std::size_t lowest = exponent(smallest + 1);
  return place_in_blocks(input, 64,
                         [&](Units size) { return std::max(exponent(size), lowest) - lowest; });
}

}  // namespace recoup::detail
