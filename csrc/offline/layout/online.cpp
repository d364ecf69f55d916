// first-fit and best-fit: placement without knowledge of the future, as by an allocator.
#include <functional>
#include <map>
#include <queue>
#include <set>
#include <utility>

#include "csrc/offline/layout/planner.h"

namespace recoup::detail {
namespace {

// The free gaps below the highest address in use. Everything above it is free.
class Gaps {
 public:
  // Returns the lowest gap that holds `size`, or the top if there is none.
  Units first_fit(Units size) const {
    for (const auto& [offset, length] : by_offset_) {
      if (length >= size) {
        return offset;
      }
    }
    return top_;
  }
  // Returns the smallest gap that holds `size`, the lowest of equal ones, or the top if there is
  // none.
  Units best_fit(Units size) const {
    const auto at = by_length_.lower_bound({size, 0});
    return at == by_length_.end() ? top_ : at->second;
  }

  void take(Units offset, Units size) {
    if (offset == top_) {
      top_ += size;
      return;
    }
    const Units length = by_offset_.at(offset);
    erase(offset, length);
    if (length > size) {
      insert(offset + size, length - size);
    }
  }

  void give(Units offset, Units size) {
    auto next = by_offset_.lower_bound(offset);
    if (next != by_offset_.end() && next->first == offset + size) {
      size += next->second;
      erase(next->first, next->second);
      next = by_offset_.lower_bound(offset);
    }
    if (next != by_offset_.begin()) {
      const auto [before, length] = *std::prev(next);
      if (before + length == offset) {
        erase(before, length);
        offset = before;
        size += length;
      }
    }
    if (offset + size == top_) {
      top_ = offset;
    } else {
      insert(offset, size);
    }
  }

 private:
  void insert(Units offset, Units length) {
    by_offset_.emplace(offset, length);
    by_length_.emplace(length, offset);
  }
  void erase(Units offset, Units length) {
    by_offset_.erase(offset);
    by_length_.erase({length, offset});
  }

  std::map<Units, Units> by_offset_;
  std::set<std::pair<Units, Units>> by_length_;  // (length, offset)
  Units top_ = 0;
};

template <class Choose>
LayoutPlacement place_online(const LayoutInput& input, Choose choose) {
  using Death = std::pair<std::int32_t, std::size_t>;  // (time, item)
  std::priority_queue<Death, std::vector<Death>, std::greater<>> deaths;
  Gaps gaps;
  LayoutPlacement result;
  for (std::size_t i = 0; i < input.items.size(); ++i) {
    const LayoutItem& item = input.items[i];
    for (; !deaths.empty() && deaths.top().first <= item.lower; deaths.pop()) {
      const std::size_t dead = deaths.top().second;
      gaps.give(result.offsets[dead], input.items[dead].size);
    }
    const Units offset = choose(gaps, item.size);
    gaps.take(offset, item.size);
    result.offsets.push_back(offset);
    deaths.emplace(item.upper, i);
  }
  result.size = height(input.items, result.offsets);
  return result;
}

}  // namespace

LayoutPlacement place_first_fit(const LayoutInput& input) {
  return place_online(input, [](const Gaps& gaps, Units size) { return gaps.first_fit(size); });
}

LayoutPlacement place_best_fit(const LayoutInput& input) {
  return place_online(input, [](const Gaps& gaps, Units size) { return gaps.best_fit(size); });
}

}  // namespace recoup::detail
