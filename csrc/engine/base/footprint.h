// Footprint: an upper bound on the pages of a pool that occupy physical memory, derived from the
// writes to the pool.
#pragma once

#include <cstdint>
#include <vector>

#include "recoup/types.h"

namespace recoup::detail {

// The sizes in which a device commits and frees memory.
struct PageSizes {
  Bytes page{0};  // unit in which memory is given back to the system; 0: never
  Bytes huge{0};  // bytes that a first touch may commit at once; a multiple of `page`
};

// Note [Footprint]
// Memory that was touched once stays committed, whatever the metadata say: free bytes of the pool
// take as much of the machine's memory as used ones. That does no harm while the pool has the whole
// budget. But bytes outside the pool are charged to the same budget, and then pool and outside
// together would exceed it. So from the first such charge on, touched pages are counted, and free
// ranges are given back to the system when touched pages and charges exceed the budget. A partial
// page at each end of a free range cannot be given back.
class Footprint {
 public:
  explicit Footprint(const PageSizes& sizes) : sizes_(sizes) {}

  // Starts counting as if the whole pool had been touched. Counting has a cost, so it starts when
  // it is first needed. False: the device gives no memory back, so nothing is counted.
  bool start(Bytes capacity);
  // Starts counting in a pool of which nothing has been touched.
  bool start_untouched() { return start(Bytes(0)); }
  [[nodiscard]] bool counting() const { return counting_; }

  // [from, from + size) is about to be written.
  void touch(PoolOffset from, Bytes size) {
    if (counting_) {
      mark(from, size);
    }
  }
  // The whole pages in [from, to), and whether any of them is touched.
  struct Pages {
    PoolOffset from;
    PoolOffset to;
    bool touched = false;
  };
  [[nodiscard]] Pages pages_in(PoolOffset from, PoolOffset to) const;
  // The pages of about `size` bytes in the middle of [from, to). They are whole huge pages, because
  // the pages of a partly used one are committed one by one.
  [[nodiscard]] Pages middle(PoolOffset from, PoolOffset to, Bytes size) const;
  // These pages were given back to the system.
  void discard(const Pages& pages);

  [[nodiscard]] Bytes touched() const { return Bytes(sizes_.page.count() * touched_); }
  // Whether all of [from, from + size) counts as touched.
  [[nodiscard]] bool covers(PoolOffset from, Bytes size) const;

 private:
  void mark(PoolOffset from, Bytes size);
  [[nodiscard]] bool get(std::int64_t page) const {
    return (words_[static_cast<std::size_t>(page / kWord)] >> (page % kWord) & 1U) != 0;
  }
  void set(std::int64_t first, std::int64_t last);
  [[nodiscard]] bool any(std::int64_t first, std::int64_t last) const;
  // Calls function(word index, mask) for pages [first, last).
  template <class Function>
  static void for_each_word(std::int64_t first, std::int64_t last, Function&& function);

  static constexpr std::int64_t kWord = 64;

  PageSizes sizes_;
  bool counting_ = false;
  std::int64_t touched_ = 0;  // pages
  std::vector<std::uint64_t> words_;
};

}  // namespace recoup::detail
