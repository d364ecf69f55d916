// AddressMap: which pieces of memory have bytes in common.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>

namespace recoup::detail {

// [from, to)
struct AddressRange {
  std::uintptr_t from = 0;
  std::uintptr_t to = 0;

  AddressRange() = default;
  AddressRange(const void* data, std::size_t size)
      : from(reinterpret_cast<std::uintptr_t>(data)), to(from + size) {}
};

// Two kinds: what was allocated, of which no two overlap, each with the id of its owner; and views
// of memory that somebody else owns, which may overlap anything. Each call takes a time that is
// logarithmic in what there is. A range without bytes overlaps nothing.
template <class IdType>
class AddressMap {
 public:
  // Whoever is known to own some of it does so no more.
  void add_owner(AddressRange range, IdType owner) {
    if (range.from >= range.to) {
      return;
    }
    for (auto at = last_in(owners_, range); at != owners_.end(); at = last_in(owners_, range)) {
      owners_.erase(at);
    }
    owners_.emplace(range.from, Owner{range.to, owner});
  }
  // Does nothing when it is not there.
  void remove_owner(AddressRange range, IdType owner) {
    if (const auto at = owners_.find(range.from); at != owners_.end() && at->second.id == owner) {
      owners_.erase(at);
    }
  }
  // One that has bytes in the range; invalid: none has.
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
  // One that was added.
  void remove_view(AddressRange range) {
    if (range.from >= range.to) {
      return;
    }
    const auto at = last_in(views_, range);
    if (--at->second.count == 0) {
      views_.erase(at);
    }
  }
  // Whether a view may have bytes in the range. Views that overlap are one until all are gone.
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

  // No two of them overlap, so only the last one that begins before the range's end can reach it.
  template <class Map>
  static auto last_in(Map& map, AddressRange range) {
    const auto behind = map.lower_bound(range.to);
    if (range.from >= range.to || behind == map.begin()) {
      return map.end();
    }
    const auto last = std::prev(behind);
    return last->second.to > range.from ? last : map.end();
  }

  std::map<std::uintptr_t, Owner> owners_;  // by where they begin
  std::map<std::uintptr_t, Views> views_;   // by where they begin: unions of those that overlap
};

}  // namespace recoup::detail
