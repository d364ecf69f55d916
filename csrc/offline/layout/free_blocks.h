// FreeBlocks: blocks that later items reuse.
#pragma once

#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "csrc/offline/layout/planner.h"

namespace recoup::detail {

// Items must take blocks in the order of their birth. Blocks are identified by number.
class FreeBlocks {
 public:
  // Returns the lowest-numbered block that is unused at the item's birth, or `fresh` if there is
  // none. The item occupies the block until its death.
  std::size_t take(const LayoutItem& item, std::size_t fresh) {
    for (; !busy_.empty() && busy_.top().first <= item.lower; busy_.pop()) {
      free_.push(busy_.top().second);
    }
    if (free_.empty()) {
      free_.push(fresh);
    }
    const std::size_t block = free_.top();
    free_.pop();
    busy_.emplace(item.upper, block);
    return block;
  }

 private:
  template <class T>
  using MinHeap = std::priority_queue<T, std::vector<T>, std::greater<>>;

  MinHeap<std::size_t> free_;
  MinHeap<std::pair<std::int32_t, std::size_t>> busy_;  // (death of its item, block)
};

}  // namespace recoup::detail
