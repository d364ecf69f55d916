// AddressMap: finds out which ranges of memory overlap.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>

namespace recoup::detail {

// The addresses [from, to).
struct AddressRange {
  std::uintptr_t from = 0;
  std::uintptr_t to = 0;

  AddressRange() = default;
  AddressRange(const void* data, std::size_t size)
      : from(reinterpret_cast<std::uintptr_t>(data)), to(from + size) {}
};

// Holds two kinds of ranges. Owned ranges are allocations; they do not overlap, and each has the id
// of its owner. Views are ranges of memory that has another owner; they may overlap anything. Each
// call takes logarithmic time. An empty range overlaps nothing.
template <class IdType>
class AddressMap {
 public:
  // Removes all earlier owners of ranges that overlap this one.
  void add_owner(AddressRange range, IdType owner) {
    if (range.from >= range.to) {
      return;
    }
    for (auto at = last_in(owners_, range); at != owners_.end(); at = last_in(owners_, range)) {
      owners_.erase(at);
    }
    owners_.emplace(range.from, Owner{range.to, owner});
  }
  // Has no effect if the range does not have this owner.
  void remove_owner(AddressRange range, IdType owner) {
    if (const auto at = owners_.find(range.from); at != owners_.end() && at->second.id == owner) {
      owners_.erase(at);
    }
  }
  // An owner of bytes in the range; invalid if there is none.
  [[nodiscard]] IdType owner_in(AddressRange range) const {
    const auto last = last_in(owners_, range);
    return last == owners_.end() ? IdType() : last->second.id;
  }

  void add_view(AddressRange range) {
    if (range.from >= range.to) {
      return;
    }
    std::size_t count = 1;
    for (auto at = last_in(views_, range); at != views_.end(); at = last_in(views_, range)) {
      range.from = std::min(range.from, at->first);
      range.to = std::max(range.to, at->second.to);
      count += at->second.count;
      views_.erase(at);
    }
    views_.emplace(range.from, Views{range.to, count});
  }
  // The view must have been added.
  void remove_view(AddressRange range) {
    if (range.from >= range.to) {
      return;
    }
    const auto at = last_in(views_, range);
    if (--at->second.count == 0) {
      views_.erase(at);
    }
  }
  // Whether a view may overlap the range. Overlapping views count as one until all of them are
  // removed.
  [[nodiscard]] bool has_view_in(AddressRange range) const {
    return last_in(views_, range) != views_.end();
  }

 private:
  struct Owner {
    std::uintptr_t to = 0;
    IdType id;
  };
  struct Views {
    std::uintptr_t to = 0;
    std::size_t count = 0;
  };

  // The stored ranges do not overlap, so only the last one that begins before the range's end can
  // reach it.
  template <class Map>
  static auto last_in(Map& map, AddressRange range) {
    const auto after = map.lower_bound(range.to);
    if (range.from >= range.to || after == map.begin()) {
      return map.end();
    }
    const auto last = std::prev(after);
    return last->second.to > range.from ? last : map.end();
  }

  std::map<std::uintptr_t, Owner> owners_;  // by start address
  std::map<std::uintptr_t, Views> views_;   // by start address: unions of overlapping views
};

}  // namespace recoup::detail
