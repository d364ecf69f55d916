// The planner `search`: optima of tiny problems by brute force, and the published instances.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "csrc/layout/tree_search.h"
#include "recoup/offline/layout.h"
#include "tests/core/support/layout_instances.h"
#include "tests/core/support/seeds.h"

namespace recoup {
namespace {

// Tries all orders and places each buffer on top of the earlier ones that overlap it in time. The
// optimum is among these layouts: its buffers by ascending offset. Orders that cannot improve the
// best layout are cut off.
class BruteForce {
 public:
  explicit BruteForce(const LayoutProblem& problem)
      : buffers_(problem.buffers),
        bound_(plan_layout(problem, "bound").size),
        end_(buffers_.size()),
        placed_(buffers_.size()) {
    place(0, Bytes(0));
  }
  [[nodiscard]] Bytes best() const { return best_; }

 private:
  void place(std::size_t count, Bytes top) {
    if (top >= best_ || best_ == bound_) {
      return;
    }
    if (count == buffers_.size()) {
      best_ = top;
    }
    for (std::size_t a = 0; a < buffers_.size(); ++a) {
      if (placed_[a]) {
        continue;
      }
      Bytes at;
      for (std::size_t b = 0; b < buffers_.size(); ++b) {
        const bool together =
            buffers_[a].lower < buffers_[b].upper && buffers_[b].lower < buffers_[a].upper;
        at = placed_[b] && together ? std::max(at, end_[b]) : at;
      }
      placed_[a] = true;
      end_[a] = at + buffers_[a].size;
      place(count + 1, std::max(top, end_[a]));
      placed_[a] = false;
    }
  }

  const std::vector<LayoutBuffer>& buffers_;
  Bytes bound_;
  std::vector<Bytes> end_;
  std::vector<bool> placed_;
  Bytes best_{std::numeric_limits<std::int64_t>::max()};
};

Bytes brute_force(const LayoutProblem& problem) { return BruteForce(problem).best(); }

TEST(LayoutSearch, FindsAndProvesTheOptimumOfTinyProblems) {
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const RandomLayout shape{.count = static_cast<int>(2 + seed % 8),
                             .steps = static_cast<int>(3 + seed % 6),
                             .most_width = static_cast<int>(2 + seed % 4),
                             .sizes = seed % 3 == 0 ? 3 : 9,
                             .grain = 1};
    const LayoutProblem problem = random_layout(seed, shape);
    const Layout layout = plan_layout(problem, "search", without_clock(0));
    ASSERT_EQ(layout.size, brute_force(problem));
    ASSERT_TRUE(layout.optimal);
    ASSERT_EQ(layout.least, layout.size);
  }
}

// A problem in which `capacity` bytes are live at every step, so that a layout has no slack.
LayoutProblem tight_layout(std::uint64_t seed, LayoutTime steps, std::int64_t capacity) {
  std::mt19937_64 random(seed);
  LayoutProblem problem;
  for (LayoutTime step = 0; step < steps; ++step) {
    std::int64_t live = 0;
    for (LayoutBuffer& old : problem.buffers) {
      if (old.upper == step && random() % 2 == 0) {
        old.upper = step + 1;
        live += old.size.count();
      }
    }
    while (live < capacity) {
      const auto size = std::min<std::int64_t>(capacity - live, 1 + static_cast<int>(random() % 4));
      problem.buffers.push_back(buffer("", step, step + 1, size));
      live += size;
    }
  }
  return problem;
}

// Hardly any random problem needs more than its bound. A few of these do, and search must prove it.
TEST(LayoutSearch, ProvesTheOptimumAboveTheBound) {
  int above_bound = 0;
  for (std::uint64_t seed = 0; seed < seeds(20'000, 10'000); ++seed) {
    const LayoutProblem problem = tight_layout(seed, 5, 6 + static_cast<int>(seed % 3));
    if (problem.buffers.size() > 11) {
      continue;
    }
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const Layout layout = plan_layout(problem, "search", without_clock(0));
    ASSERT_TRUE(layout.optimal);
    if (layout.size > layout.bound) {
      ++above_bound;
      ASSERT_EQ(layout.size, brute_force(problem));
    }
  }
  EXPECT_GE(above_bound, seeds(2));
}

// Greedy placement rarely fails on tiny problems, so this test runs the tree search for every
// capacity.
TEST(LayoutSearch, TreeSearchDecidesEveryCapacity) {
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    std::vector<detail::LayoutItem> items;
    LayoutProblem problem;
    std::int32_t sections = 0;
    for (std::uint64_t i = 0; i < 4 + seed % 6; ++i) {
      const auto lower = static_cast<std::int32_t>(random() % 6);
      const auto upper =
          static_cast<std::int32_t>(static_cast<std::uint64_t>(lower) + 1 + random() % 4);
      items.push_back({lower, upper, static_cast<detail::Units>(1 + random() % 5)});
      sections = std::max(sections, upper);
    }
    std::sort(items.begin(), items.end(),
              [](const auto& a, const auto& b) { return a.lower < b.lower; });
    for (const detail::LayoutItem& item : items) {
      problem.buffers.push_back(buffer("", item.lower, item.upper, item.size));
    }
    std::vector<std::uint32_t> order(items.size());
    std::iota(order.begin(), order.end(), 0U);
    const detail::Units best = brute_force(problem).count();
    detail::TreeSearch tree(items, sections);
    for (const int shuffle : {0, 1, 2}) {  // facts from one run must hold in the next one
      SCOPED_TRACE(testing::Message() << "shuffle " << shuffle);
      std::shuffle(order.begin(), order.end(), random);
      for (detail::Units capacity = std::max<detail::Units>(1, best - 3); capacity < best + 3;
           ++capacity) {
        const auto outcome =
            tree.run(order, {.capacity = capacity, .nodes = 1 << 20, .deadline = {}});
        ASSERT_EQ(outcome, capacity < best ? detail::TreeSearch::Outcome::kInfeasible
                                           : detail::TreeSearch::Outcome::kFound)
            << "capacity " << capacity << ", optimum " << best;
        if (capacity >= best) {
          ASSERT_LE(detail::height(items, tree.offsets()), capacity);
        }
      }
    }
  }
}

TEST(LayoutSearch, IsAtLeastAsGoodAsAnyOtherPlanner) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const LayoutProblem problem = random_layout(seed, {.count = 80});
    const Bytes size = plan_layout(problem, "search", without_clock(3000)).size;
    for (const PlannerInfo& info : planners()) {
      if (info.places) {
        EXPECT_LE(size, plan_layout(problem, info.name).size) << info.name;
      }
    }
  }
}

TEST(LayoutSearch, StopsAtTheTimeLimit) {
  LayoutOptions options;
  options.time_limit = std::chrono::duration<double>(0);
  const LayoutProblem problem = random_layout(3, {.count = 200});
  const Layout layout = plan_layout(problem, "search", options);
  EXPECT_EQ(layout.nodes, 0);
  EXPECT_EQ(check_layout(problem, layout, options), "");
}

// A rectangle of time and addresses that is cut into pieces: a layout without gaps exists.
LayoutProblem cut_up(std::uint64_t seed, std::size_t pieces, LayoutTime steps,
                     std::uint64_t cuts_in_time) {
  struct Piece {
    std::int64_t lower, upper, low, high;
    [[nodiscard]] std::int64_t area() const { return (upper - lower) * (high - low); }
  };
  std::mt19937_64 random(seed);
  const auto below = [&](std::int64_t count) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(count));
  };
  std::vector<Piece> all = {{0, steps, 0, 1024}};
  while (all.size() < pieces) {
    std::size_t largest = random() % all.size();
    for (int other = 0; other < 3; ++other) {
      const std::size_t at = random() % all.size();
      largest = all[at].area() > all[largest].area() ? at : largest;
    }
    Piece& old = all[largest];
    const bool in_time = random() % 100 < cuts_in_time;
    const std::int64_t length = in_time ? old.upper - old.lower : old.high - old.low;
    if (length < 2) {
      continue;
    }
    Piece rest = old;
    const std::int64_t cut = 1 + below(length - 1);
    (in_time ? old.upper : old.high) = (in_time ? old.lower : old.low) + cut;
    (in_time ? rest.lower : rest.low) += cut;
    all.push_back(rest);
  }
  LayoutProblem problem;
  for (const Piece& piece : all) {
    problem.buffers.push_back(buffer("", piece.lower, piece.upper, piece.high - piece.low));
  }
  return problem;
}

// With one short run per plain order only, none of these fit within this number of nodes.
TEST(LayoutSearch, FindsLayoutsWithoutGaps) {
  const std::vector<LayoutProblem> problems = {cut_up(11, 300, 200, 75), cut_up(18, 300, 200, 75),
                                               cut_up(8, 450, 300, 85), cut_up(17, 450, 300, 85)};
  for (const LayoutProblem& problem : problems) {
    LayoutOptions options = without_clock(400'000);
    options.capacity = Bytes(1024);
    const Layout layout = plan_layout(problem, "search", options);
    EXPECT_EQ(layout.bound, Bytes(1024));
    EXPECT_EQ(check_layout(problem, layout, options), "");
  }
}

struct Published {
  const char* file;
  std::int64_t capacity;
  std::int64_t bound;
};

class PublishedLayouts : public testing::TestWithParam<Published> {};

INSTANTIATE_TEST_SUITE_P(MiniMalloc, PublishedLayouts,
                         testing::Values(Published{"A.1048576.csv", 1'048'576, 1'048'576},
                                         Published{"B.1048576.csv", 1'048'576, 1'048'576},
                                         Published{"C.1048576.csv", 1'048'576, 1'039'360},
                                         Published{"C.1048576.csv", 1'039'360, 1'039'360},
                                         Published{"D.1048576.csv", 1'048'576, 986'112},
                                         Published{"E.1048576.csv", 1'048'576, 1'048'576},
                                         Published{"I.1048576.csv", 1'048'576, 1'048'576},
                                         Published{"K.1048576.csv", 1'048'576, 1'048'576},
                                         Published{"input.12.csv", 12, 12}));

TEST_P(PublishedLayouts, FitInTheirCapacity) {
  const LayoutProblem problem = published(std::string("minimalloc/") + GetParam().file);
  RECOUP_SKIP_WITHOUT(problem);
  LayoutOptions options = without_clock(3'000'000);
  options.capacity = Bytes(GetParam().capacity);
  const Layout layout = plan_layout(problem, "search", options);
  EXPECT_EQ(layout.bound, Bytes(GetParam().bound));
  EXPECT_EQ(check_layout(problem, layout, options), "");
}

TEST(PublishedTraces, AreCloseToTheBound) {
  for (const char* file : {"idealloc/resnet50.csv", "idealloc/G_1.csv"}) {
    const LayoutProblem problem = published(file);
    RECOUP_SKIP_WITHOUT(problem);
    const auto over = [&](std::string_view planner) {
      const Layout layout = plan_layout(problem, planner, without_clock());
      EXPECT_EQ(check_layout(problem, layout), "");
      return static_cast<double>(layout.size.count()) / static_cast<double>(layout.bound.count());
    };
    EXPECT_LE(over("greedy-by-size"), 1.02) << file;
    EXPECT_EQ(over("search"), 1) << file;
  }
}

// A slow heuristic stops when the time is over; the result is then that of the fastest one.
TEST(LayoutSearch, HeuristicsStopAtTheTimeLimit) {
  const LayoutProblem problem =
      random_layout(7, {.count = 8000, .steps = 4000, .most_width = 400, .sizes = 1000});
  LayoutOptions options;
  options.time_limit = std::chrono::nanoseconds(1);
  EXPECT_EQ(plan_layout(problem, "search", options).size, plan_layout(problem, "best-fit").size);
  EXPECT_LE(plan_layout(problem, "search", without_clock()).size,
            plan_layout(problem, "greedy-by-size").size);
}

// Items of equal size are also tried in input order.
TEST(LayoutSearch, IsAtLeastAsGoodAsFirstFitBySize) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    const LayoutProblem problem = random_layout(seed, {.count = 300, .steps = 60, .sizes = 4});
    std::vector<std::size_t> order(problem.buffers.size());
    std::iota(order.begin(), order.end(), 0U);
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return problem.buffers[a].size > problem.buffers[b].size;
    });
    std::vector<Bytes> at(order.size(), Bytes(-1));
    Bytes top;
    for (const std::size_t i : order) {
      const LayoutBuffer& item = problem.buffers[i];
      std::vector<std::pair<Bytes, Bytes>> taken;
      for (std::size_t other = 0; other < at.size(); ++other) {
        const LayoutBuffer& placed = problem.buffers[other];
        if (at[other] >= Bytes(0) && item.lower < placed.upper && placed.lower < item.upper) {
          taken.emplace_back(at[other], at[other] + placed.size);
        }
      }
      std::sort(taken.begin(), taken.end());
      at[i] = Bytes(0);
      for (const auto& [begin, end] : taken) {
        if (begin >= at[i] + item.size) {
          break;
        }
        at[i] = std::max(at[i], end);
      }
      top = std::max(top, at[i] + item.size);
    }
    EXPECT_LE(plan_layout(problem, "search", without_clock(1)).size, top);
  }
}

}  // namespace
}  // namespace recoup
