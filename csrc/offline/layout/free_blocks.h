// FreeBlocks: blocks that are used again by whoever comes next.
#pragma once

#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "csrc/offline/layout/planner.h"

namespace recoup::detail {

// Numbers of blocks. The items that take one come in the order of their birth.
class FreeBlocks {
 public:
  // The first block that nobody uses when `item` is born, `fresh` when there is none. The item has
  // it to its death.
  std::size_t take(const PlanItem& item, std::size_t fresh) {
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
  MinHeap<std::pair<std::int32_t, std::size_t>> busy_;  // (until when, block)
};

}  // namespace recoup::detail
