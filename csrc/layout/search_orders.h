// SearchOrders: chooses the order in which each run of search tries candidates, and its length.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include "csrc/layout/items.h"

namespace recoup::detail {

// The progress of one run of TreeSearch.
struct Progress {
  std::int64_t most_placed = 0;     // the most items that were in place at the same time
  std::vector<std::int64_t> fails;  // by section: how often it was too full
};

// The plain orders are MiniMalloc's and similar ones: large totals, long lives or large areas
// first. Some problems are solved by one of them when it has a few times the nodes of a short run,
// so all of them are repeated, each time with twice the length.
//
// But a single order seldom suits all moments of a run. Most nodes go to drawn orders: the items
// around a section where a run failed get their positions from another plain order, with some
// noise, and all others keep theirs. The change is kept if the search then makes about as much
// progress. So each moment gets an order of its own. These runs are short, and occasionally longer.
class RECOUP_API SearchOrders {
 public:
  SearchOrders(const LayoutInput& input, std::uint64_t seed);

  static constexpr std::size_t kPlain = 6;

  struct Run {
    std::span<const std::uint32_t> order;
    std::int64_t length = 1;  // as a multiple of the shortest run
  };

  // Returns the next run; `last` is the progress of the previous one.
  Run next(const Progress& last);

  // Returns plain order `which`, 0 to kPlain - 1.
  [[nodiscard]] std::span<const std::uint32_t> plain(std::size_t which) const {
    return plain_[which];
  }

 private:
  struct Kept {
    std::vector<double> key;
    Progress progress;
  };

  void judge(const Progress& last);
  void draw();
  void redraw(std::int32_t lower, std::int32_t upper);
  [[nodiscard]] std::int32_t pick(std::span<const std::int64_t> weights);
  [[nodiscard]] std::int32_t below(std::int32_t count);

  std::span<const LayoutItem> items_;
  std::int32_t sections_;
  std::array<std::vector<std::uint32_t>, kPlain> plain_;
  std::array<std::vector<double>, kPlain> place_;  // by plain order and item: its position, 0 to 1
  std::vector<double> key_;                        // by item; the order is sorted by it
  std::optional<Kept> kept_;                       // the best drawn order so far, approximately
  std::vector<std::uint32_t> order_;
  bool drawn_ = false;  // whether the last order was drawn
  std::int64_t draws_ = 0;
  std::int64_t drawn_lengths_ = 0;  // sum over all drawn runs
  std::int64_t plain_lengths_ = 0;  // sum over all plain runs
  std::int64_t plain_length_ = 1;   // of the next plain run
  std::size_t next_plain_ = 0;
  std::mt19937_64 random_;
};

}  // namespace recoup::detail
