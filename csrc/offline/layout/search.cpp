// search: a complete search for the smallest layout, within a limit of time or nodes.
//
//   bound, no layout takes less                 size of the best heuristic
//     |----------------------------------------------------|
//     low: proved infeasible below          best: found ----|
//
// Runs of TreeSearch try capacities in between, most of them the goal: `low`, or a given capacity.
// A run that finds a layout lowers `best`; one that is exhausted raises `low`. When they meet, the
// layout is proved to be optimal. SearchOrders chooses the order and the length of each run.
#include <algorithm>
#include <array>
#include <numeric>

#include "csrc/layout/greedy.h"
#include "csrc/layout/search_orders.h"
#include "csrc/layout/tree_search.h"

namespace recoup::detail {

std::optional<LayoutPlacement> place_multi_level(const LayoutInput& input,
                                                 const Deadline& deadline);
LayoutPlacement place_best_fit(const LayoutInput& input);

namespace {

// With more items the frames and the neighbor lists of TreeSearch take too much memory, and one
// descent takes too long.
constexpr std::size_t kMostItems = 3000;
constexpr std::uint64_t kSeed = 1033096058;
constexpr std::int64_t kLeastNodes = 500;  // per run
constexpr int kRunsInARow = 16;            // at one capacity
// Capacities to try, in 16ths of the way from the goal to `best`; 16: one grain below `best`.
constexpr std::array kSteps = {16, 14, 12, 8, 4, 1};

class LayoutSearch {
 public:
  explicit LayoutSearch(const LayoutInput& input) : input_(input) {
    for (const LayoutItem& item : input.items) {
      grain_ = std::gcd(grain_, item.size);
    }
    low_ = input.bound;
    best_ = place_best_fit(input);  // the fastest heuristic by far
  }

  LayoutPlacement run() {
    try_heuristics();
    if (best_.size > input_.target && input_.items.size() <= kMostItems) {
      search();
    }
    best_.least = low_;
    best_.nodes = nodes_;
    return best_;
  }

 private:
  // A capacity to try: the goal, or one of kSteps. Each has its own orders.
  struct Line {
    SearchOrders orders;
    Progress progress;  // of the last run at this capacity
  };

  void keep(const std::optional<LayoutPlacement>& placement) {
    if (placement && placement->size < best_.size) {
      best_ = *placement;
    }
  }

  // Runs the heuristics until one reaches the target or the time is over: with tens of thousands of
  // items each of them takes seconds. A problem that is small enough for search is placed by size
  // in any case.
  void try_heuristics() {
    const std::span<const LayoutItem> items = input_.items;
    const bool quick = items.size() <= kMostItems;
    keep(place_in_order(input_, order_by_size(items), quick ? Deadline() : input_.deadline));
    if (!is_over()) {
      keep(place_in_order(input_, order_by_size(items, Equals::kInInputOrder), input_.deadline));
    }
    if (!is_over()) {
      keep(place_multi_level(input_, input_.deadline));
    }
    const SearchOrders orders(input_, kSeed);
    for (std::size_t i = 0; i < SearchOrders::kPlain && !is_over(); ++i) {
      keep(place_in_order(input_, orders.plain(i), input_.deadline));
    }
  }

  void search() {
    TreeSearch tree(input_.items, input_.sections);
    for (std::size_t i = 0; i <= kSteps.size(); ++i) {
      lines_.push_back({.orders = SearchOrders(input_, kSeed + i), .progress = {}});
    }
    const std::size_t every = input_.target_is_given ? 4 : 2;
    std::size_t steps = 0;
    for (std::size_t turn = 0; !is_over(); ++turn) {
      const Units goal = std::max(low_, std::min(input_.target, best_.size));
      if (turn % every != every - 1) {
        ask(tree, goal, lines_[0]);
        continue;
      }
      const std::size_t step = steps++ % kSteps.size();
      const Units capacity =
          kSteps[step] == 16 ? best_.size - grain_ : goal + (best_.size - goal) / 16 * kSteps[step];
      ask(tree, std::max(goal, capacity), lines_[step + 1]);
    }
  }

  // Searches for a layout in `capacity` by a few runs. Each run may find one, prove that there is
  // none, or give up.
  void ask(TreeSearch& tree, Units capacity, Line& line) {
    // offsets are sums of sizes, so they are multiples of the grain
    capacity = capacity / grain_ * grain_;
    for (int run = 0; run < kRunsInARow && !is_over(); ++run) {
      const auto short_run = std::max<std::int64_t>(kLeastNodes, std::ssize(input_.items) * 2);
      const SearchOrders::Run next = line.orders.next(line.progress);
      std::int64_t nodes = short_run * next.length;
      if (input_.node_limit > 0) {
        nodes = std::min(nodes, input_.node_limit - nodes_);
      }
      const auto outcome =
          tree.run(next.order, {.capacity = capacity, .nodes = nodes, .deadline = input_.deadline});
      nodes_ += tree.nodes();
      line.progress = {.most_placed = tree.most_placed(),
                       .fails = {tree.fails().begin(), tree.fails().end()}};
      if (outcome == TreeSearch::Outcome::kFound) {
        keep(LayoutPlacement{.offsets = tree.offsets(),
                             .size = height(input_.items, tree.offsets()),
                             .least = 0,
                             .nodes = 0});
        return;
      }
      if (outcome == TreeSearch::Outcome::kInfeasible) {
        low_ = std::max(low_, capacity + grain_);
        return;
      }
    }
  }

  [[nodiscard]] bool is_over() const {
    return best_.size <= std::max(input_.target, low_) ||
           (input_.node_limit > 0 && nodes_ >= input_.node_limit) ||
           (input_.deadline && std::chrono::steady_clock::now() >= *input_.deadline);
  }

  const LayoutInput& input_;
  std::vector<Line> lines_;  // the goal's, then one for each of kSteps
  Units grain_ = 0;
  Units low_ = 0;  // proved lower bound of the size
  LayoutPlacement best_;
  std::int64_t nodes_ = 0;
};

}  // namespace

LayoutPlacement place_by_search(const LayoutInput& input) {
  return input.items.empty() ? LayoutPlacement{} : LayoutSearch(input).run();
}

}  // namespace recoup::detail
