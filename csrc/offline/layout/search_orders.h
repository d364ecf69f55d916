// SearchOrders: in which order search tries what could come next from run to run, and for how long.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include "csrc/offline/layout/planner.h"

namespace recoup::detail {

// How far a run of TreeSearch came.
struct Progress {
  std::int64_t most_placed = 0;     // items that were in place at a time
  std::vector<std::int64_t> fails;  // how often each section was too full
};

// The plain orders are MiniMalloc's and their like: large totals, long lives or large areas first.
// There are problems that one of them solves when it has a few times the nodes of a short run, so
// that all of them come again and again, each time for twice as long.
//
// Yet one order seldom suits all times of a run. Most nodes go to orders that are drawn: the items
// around a section where a run failed get their places from another of the plain orders, with some
// noise, and all others keep theirs. The change stays if the search then comes about as far. So
// each time finds its order by itself. These runs are short, and now and then longer.
class SearchOrders {
 public:
  SearchOrders(const PlanInput& input, std::uint64_t seed);

  static constexpr std::size_t kPlain = 6;

  struct Run {
    std::span<const std::uint32_t> order;
    std::int64_t length = 1;  // as a multiple of the shortest run's
  };

  // What to run next; `last` is of the run before.
  Run next(const Progress& last);

  // One of the kPlain orders.
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

  std::span<const PlanItem> items_;
  std::int32_t sections_;
  std::array<std::vector<std::uint32_t>, kPlain> plain_;
  std::array<std::vector<double>, kPlain> place_;  // of each item in the plain order, 0 to 1
  std::vector<double> key_;                        // by which the order is sorted
  std::optional<Kept> kept_;                       // the best so far, about
  std::vector<std::uint32_t> order_;
  bool drawn_ = false;  // the last order was
  std::int64_t draws_ = 0;
  std::int64_t drawn_lengths_ = 0;  // sums
  std::int64_t plain_lengths_ = 0;  //
  std::int64_t plain_length_ = 1;   // of the next plain run
  std::size_t next_plain_ = 0;
  std::mt19937_64 random_;
};

}  // namespace recoup::detail
