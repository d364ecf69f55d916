// Which pages of a pool have memory behind them, as far as that is known from outside of the
// system: at most so many.
#pragma once

#include <cstdint>
#include <vector>

#include "recoup/types.h"

namespace recoup::detail {

// How a device's memory comes and goes.
struct PageSizes {
  Bytes page{0};  // the unit in which it is given back; 0: never
  Bytes huge{0};  // what the first touch of an empty range may bring at once, a multiple of it
};

// Note [Footprint]
// Memory that was used once stays where it is, whatever the metadata say: free bytes of the pool
// take as much of the machine as others. That is no harm while all of the budget is the pool's.
// Bytes made outside are charged to the same budget, and then both together would take more than
// it. So pages that were touched are counted from the first such charge on, and free ranges are
// given back to the system when pages and charges exceed the budget. What cannot be given back is a
// part of a page at each end of a free range.
class Footprint {
 public:
  explicit Footprint(const PageSizes& sizes) : sizes_(sizes) {}

  // Counting costs something, so it begins when it is needed: as if all of the pool had been
  // touched. False: there is nothing to count.
  bool start(Bytes capacity);
  [[nodiscard]] bool counting() const { return counting_; }

  // [from, from + size) is written.
  void touch(PoolOffset from, Bytes size) {
    if (counting_) {
      mark(from, size);
    }
  }
  // The whole pages in [from, to), and whether any of them has memory.
  struct Pages {
    PoolOffset from;
    PoolOffset to;
    bool touched = false;
  };
  [[nodiscard]] Pages pages_in(PoolOffset from, PoolOffset to) const;
  // The same of at least `size` in its middle, as far as there is so much. Huge pages are whole
  // there: of a part of one each page would come by itself.
  [[nodiscard]] Pages middle(PoolOffset from, PoolOffset to, Bytes size) const;
  // They were given back.
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
