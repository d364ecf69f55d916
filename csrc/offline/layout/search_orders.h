// SearchOrders: in which order search tries what could come next, from run to run.
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

// The first orders are MiniMalloc's and their like: large totals, long lives or large areas first.
// One order seldom suits all times of a run. When each has been tried, the items around a section
// where the last run failed get their places from another of the orders, with some noise, and all
// others keep theirs. The change stays if the search then comes about as far. So each time finds
// its order by itself.
class SearchOrders {
 public:
  SearchOrders(const PlanInput& input, std::uint64_t seed);

  static constexpr std::size_t kPlain = 6;

  // The order for the next run; `last` is of the run with the order before.
  std::span<const std::uint32_t> next(const Progress& last);

  // One of the kPlain orders.
  [[nodiscard]] std::span<const std::uint32_t> plain(std::size_t which) const {
    return plain_[which];
  }

 private:
  struct Kept {
    std::vector<double> key;
    Progress progress;
  };

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
  std::size_t runs_ = 0;
  std::mt19937_64 random_;
};

}  // namespace recoup::detail
