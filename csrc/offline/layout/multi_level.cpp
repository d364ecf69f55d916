// ge: the multi-level reuse of CANN's graph engine.
//
// Level 1 joins buffers of the same size whose lifetimes do not overlap into one block. Level 2
// takes the blocks from large to small. A block goes into the first outer block whose lifetime does
// not overlap its own, at the lowest place that no block inside it occupies at the same time.
// Nesting can be arbitrarily deep. If there is no such place, the block becomes an outer block
// itself, placed after all others.
//
// Two things are not in CANN: the choice of the level 1 block for a buffer (see `join`), and a
// second run of level 2 without level 1, because joined buffers must find one place for all of
// them. The smaller layout is kept.
//
//   E 4096 [5,6], B 2048 [2,4], {A,C} 1024 [1,4], D 512 [4,5]:
//
//   4096  +---+                  D lives at the same time as E
//         | D |
//      0  +---+---------------+
//         | E, when it is not  |  B at 0, {A,C} at 2048 above B
//         | live: {A,C} over B |
//         +--------------------+
#include <algorithm>
#include <utility>

#include "csrc/layout/greedy.h"
#include "csrc/layout/placed.h"
#include "csrc/offline/layout/free_blocks.h"

namespace recoup::detail {
namespace {

using Life = std::pair<std::int32_t, std::int32_t>;  // in sections: [first, second)

// Items of one size with disjoint lifetimes.
struct Joined {
  std::vector<std::uint32_t> items;
  std::vector<Life> lives;  // of the items, ascending and disjoint
  Units size = 0;

  [[nodiscard]] bool meets(std::int32_t lower, std::int32_t upper) const {
    if (lives.size() == 1) {  // fast path: most blocks have one item
      return lower < lives[0].second && lives[0].first < upper;
    }
    const auto after = std::partition_point(lives.begin(), lives.end(),
                                            [&](const Life& life) { return life.second <= lower; });
    return after != lives.end() && after->first < upper;
  }
  [[nodiscard]] bool meets(const Joined& other) const {
    const bool shorter = lives.size() < other.lives.size();
    const Joined& few = shorter ? *this : other;
    const Joined& many = shorter ? other : *this;
    return std::any_of(few.lives.begin(), few.lives.end(),
                       [&](const Life& life) { return many.meets(life.first, life.second); });
  }
};

// Level 1. `same` holds items of one size in the order of their birth; their blocks are appended to
// `blocks`. Each item takes the first free block. Then the last blocks live at peaks only, and
// level 2 finds room in them. (If an item took the block that has been free for longest, every
// block would live throughout.)
void join(const LayoutInput& input, std::span<const std::uint32_t> same,
          std::vector<Joined>& blocks) {
  FreeBlocks free;
  for (const std::uint32_t i : same) {
    const LayoutItem& item = input.items[i];
    const std::size_t block = free.take(item, blocks.size());
    if (block == blocks.size()) {
      blocks.push_back({.items = {}, .lives = {}, .size = item.size});
    }
    blocks[block].items.push_back(i);
    blocks[block].lives.emplace_back(item.lower, item.upper);
  }
}

// Returns blocks from large to small. Without `joins` each item is a block of its own.
std::vector<Joined> level_one(const LayoutInput& input, bool joins) {
  std::vector<std::uint32_t> order = order_by_size(input.items);
  std::vector<Joined> blocks;
  for (auto begin = order.begin(); begin != order.end();) {
    const Units size = input.items[*begin].size;
    const auto end = std::find_if(begin, order.end(),
                                  [&](std::uint32_t i) { return input.items[i].size != size; });
    std::sort(begin, end);
    if (joins) {
      join(input, {begin, end}, blocks);
    } else {
      std::for_each(begin, end, [&](std::uint32_t i) {
        const LayoutItem& item = input.items[i];
        blocks.push_back({.items = {i}, .lives = {{item.lower, item.upper}}, .size = size});
      });
    }
    begin = end;
  }
  return blocks;
}

struct Outer {
  const Joined* block = nullptr;
  Units offset = 0;
  PlacedRows inside;
};

// Returns nullopt if the deadline passes.
std::optional<LayoutPlacement> level_two(const LayoutInput& input,
                                         const std::vector<Joined>& blocks,
                                         const Deadline& deadline) {
  std::vector<Outer> outers;
  Overtime overtime(deadline);
  LayoutPlacement result;
  result.offsets.resize(input.items.size());
  for (const Joined& block : blocks) {
    if (overtime.now()) {
      return std::nullopt;
    }
    const auto meets = [&block](std::int32_t lower, std::int32_t upper) {
      return block.meets(lower, upper);
    };
    Units offset = result.size;
    Outer* home = nullptr;
    for (Outer& outer : outers) {
      if (outer.block->meets(block)) {
        continue;
      }
      const Units place = outer.inside.lowest_place(block.size, outer.offset, meets);
      if (place + block.size <= outer.offset + outer.block->size) {
        offset = place;
        home = &outer;
        break;
      }
    }
    if (home == nullptr) {
      outers.push_back({.block = &block, .offset = result.size, .inside = {}});
      result.size += block.size;
    }
    for (const std::uint32_t i : block.items) {
      result.offsets[i] = offset;
      if (home != nullptr) {
        home->inside.insert(input.items[i], offset);
      }
    }
  }
  return result;
}

}  // namespace

std::optional<LayoutPlacement> place_multi_level(const LayoutInput& input,
                                                 const Deadline& deadline) {
  std::optional<LayoutPlacement> joined = level_two(input, level_one(input, true), deadline);
  if (!joined || joined->size == input.bound) {
    return joined;
  }
  std::optional<LayoutPlacement> apart = level_two(input, level_one(input, false), deadline);
  return apart && apart->size < joined->size ? apart : joined;
}

LayoutPlacement place_multi_level(const LayoutInput& input) {
  return *place_multi_level(input, {});
}

}  // namespace recoup::detail
