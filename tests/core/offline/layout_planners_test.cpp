// The guarantees of every planner in the registry, and the published examples.
#include <gtest/gtest.h>

#include <algorithm>

#include "recoup/offline/layout.h"
#include "tests/core/support/layout_instances.h"

namespace recoup {
namespace {

class Planners : public testing::TestWithParam<std::string_view> {
 protected:
  static void expect_valid(const LayoutProblem& problem, const LayoutOptions& options) {
    const Layout layout = plan_layout(problem, GetParam(), options);
    EXPECT_GE(layout.size, layout.bound);
    EXPECT_GE(layout.size, layout.least);
    EXPECT_GE(layout.sum, layout.size);
    if (find_planner(GetParam()).places) {
      EXPECT_EQ(check_layout(problem, layout, options), "");
    }
  }
};

std::vector<std::string_view> planner_names() {
  std::vector<std::string_view> names;
  for (const PlannerInfo& info : planners()) {
    names.push_back(info.name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Registry, Planners, testing::ValuesIn(planner_names()),
                         [](const auto& row) {
                           std::string name(row.param);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST_P(Planners, MakeValidLayoutsOfRandomProblems) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const RandomLayout shape{.count = static_cast<int>(1 + seed * 3),
                             .steps = static_cast<int>(2 + seed % 7 * 20),
                             .most_width = static_cast<int>(1 + seed % 5 * 12),
                             .sizes = seed % 3 == 0 ? 3 : 500,
                             .grain = seed % 2 == 0 ? 1 : 48,
                             .streams = seed % 4 == 0 ? 3 : 1};
    LayoutOptions options = without_clock(2000);
    options.alignment = Bytes(seed % 3 == 0 ? 1 : 64);
    expect_valid(random_layout(seed, shape), options);
  }
}

TEST_P(Planners, HandleEdgeCases) {
  const LayoutOptions options = without_clock();
  expect_valid({}, options);
  expect_valid({.buffers = {buffer("one", -5, 9, 7)}, .ops = {}}, options);
  expect_valid({.buffers = {buffer("none", 0, 1, 0), buffer("some", 0, 1, 3)}, .ops = {}}, options);
  const std::int64_t large = std::int64_t{1} << 60;
  expect_valid({.buffers = {buffer("a", 0, 2, large), buffer("b", 1, 3, large)}, .ops = {}},
               options);
  LayoutProblem same;
  for (int i = 0; i < 50; ++i) {
    same.buffers.push_back(buffer("same", 0, 10, 100));
  }
  expect_valid(same, options);
  EXPECT_EQ(plan_layout(same, GetParam(), options).size, Bytes(5000));
}

TEST_P(Planners, GiveTheSameLayoutTwice) {
  const LayoutProblem problem = random_layout(1, {.count = 150});
  const LayoutOptions options = without_clock(5000);
  EXPECT_EQ(plan_layout(problem, GetParam(), options).offsets,
            plan_layout(problem, GetParam(), options).offsets);
}

TEST_P(Planners, ReportTheNeededCapacity) {
  LayoutOptions options = without_clock();
  options.capacity = 4607_B;
  options.alignment = 512_B;
  try {
    plan_layout(example_1(), GetParam(), options);
    ADD_FAILURE() << "4,607 bytes are one too few";
  } catch (const LayoutDoesNotFit& error) {
    EXPECT_EQ(error.bound(), 4608_B);
    EXPECT_GE(error.needed(), 4608_B);
    EXPECT_NE(std::string(error.what()).find("4,608"), std::string::npos) << error.what();
    options.capacity = error.needed();
    EXPECT_EQ(plan_layout(example_1(), GetParam(), options).size, error.needed());
  }
}

// All buffers that share an address are of one stream, whatever their lifetimes.
TEST_P(Planners, KeepStreamsApart) {
  LayoutProblem problem{.buffers = {buffer("a", 0, 1, 100), buffer("b", 1, 2, 100)}, .ops = {}};
  EXPECT_EQ(plan_layout(problem, GetParam()).size, 100_B);
  problem.buffers[1].stream = 7;
  EXPECT_EQ(plan_layout(problem, GetParam()).size, 200_B);
}

TEST(PlannerFigures, ExampleOfTheGraphEngine) {
  const LayoutOptions options{.alignment = 512_B,
                              .capacity = {},
                              .time_limit = std::chrono::seconds(10),
                              .node_limit = 0,
                              .disable_inplace_ops = {}};
  const auto size = [&](std::string_view planner) {
    return plan_layout(example_1(), planner, options).size;
  };
  EXPECT_EQ(plan_layout(example_1(), "bound", options).sum, 8704_B);
  EXPECT_EQ(size("bound"), 4608_B);
  EXPECT_EQ(size("max-block"), 6656_B);
  EXPECT_EQ(size("binary-block"), 7680_B);
  EXPECT_EQ(size("ge"), 4608_B);
  EXPECT_EQ(size("search"), 4608_B);
  // B is at the start of E, A and C are above it, and D is last.
  const Layout ge = plan_layout(example_1(), "ge", options);
  EXPECT_EQ(ge.offsets, (std::vector<PoolOffset>{2048_B, 0_B, 2048_B, 4096_B, 0_B}));
}

// c and d take the block of a, although that of b has been free for longer when d is born. So x
// finds room in the block of b.
//
//   8     +-------+
//         |   b   +-------+
//         |       |   x   |
//   4  +--+----+--+---+---+
//      |   a   |  | c | d |
//   0  +-------+  +---+---+
TEST(MultiLevel, TheFirstFreeBlockIsReused) {
  const LayoutProblem problem{
      .buffers = {buffer("a", 0, 2, 4), buffer("b", 1, 3, 4), buffer("c", 3, 4, 4),
                  buffer("d", 4, 5, 4), buffer("x", 3, 5, 3)},
      .ops = {}};
  const Layout layout = plan_layout(problem, "ge");
  EXPECT_EQ(layout.size, 8_B);
  EXPECT_EQ(layout.offsets, (std::vector<PoolOffset>{0_B, 4_B, 0_B, 0_B, 4_B}));
}

// If s and t were joined, they would need one place: s fits next to q only at 5, t next to r only
// at 0.
TEST(MultiLevel, LevelOneIsSkippedIfItCostsMemory) {
  const LayoutProblem problem{
      .buffers = {buffer("outer", 5, 6, 10), buffer("q", 1, 3, 5), buffer("r", 2, 4, 5),
                  buffer("s", 1, 2, 4), buffer("t", 3, 4, 4)},
      .ops = {}};
  const Layout layout = plan_layout(problem, "ge");
  EXPECT_EQ(layout.size, 10_B);
  EXPECT_EQ(layout.offsets, (std::vector<PoolOffset>{0_B, 0_B, 5_B, 5_B, 0_B}));
}

// Example 2: T1 [1, 2] and T2 [2, 3] conflict, T1 and T3 [3, 3] do not (lifetimes include both
// ends).
TEST_P(Planners, KnowTheConflictsOfExample2) {
  const LayoutProblem problem{
      .buffers = {buffer("Input", 0, 1, 64), buffer("T1", 1, 3, 64), buffer("T2", 2, 4, 64),
                  buffer("T3", 3, 4, 64), buffer("Output", 4, 5, 64)},
      .ops = {}};
  EXPECT_EQ(plan_layout(problem, GetParam()).size, 128_B);
  if (find_planner(GetParam()).places) {
    const Layout layout = plan_layout(problem, GetParam());
    EXPECT_NE(layout.offsets[1], layout.offsets[2]);
    EXPECT_EQ(layout.offsets[1], layout.offsets[3]);
  }
}

TEST(PlannerRegistry, AnUnknownNameListsThePlanners) {
  EXPECT_EQ(find_planner("ge").name, "ge");
  try {
    find_planner("worst-fit");
    ADD_FAILURE() << "there is no worst-fit";
  } catch (const std::invalid_argument& error) {
    EXPECT_STREQ(error.what(),
                 "unknown planner 'worst-fit'; the planners are bound, max-block, binary-block, "
                 "ge, first-fit, best-fit, greedy-by-size, search");
  }
}

TEST(LayoutProblems, ErrorsNameTheInvalidBuffer) {
  const auto refused = [](const LayoutProblem& problem, const LayoutOptions& options,
                          const std::string& words) {
    try {
      plan_layout(problem, "ge", options);
      ADD_FAILURE() << words;
    } catch (const std::invalid_argument& error) {
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
  };
  const LayoutProblem good{.buffers = {buffer("a", 0, 1, 1)}, .ops = {}};
  const LayoutProblem empty_life{.buffers = {good.buffers[0], buffer("b", 3, 3, 1)}, .ops = {}};
  refused(empty_life, {}, "'b' (buffer 1): lower must be below upper; got [3, 3)");
  refused({.buffers = {buffer("b", 0, 1, -1)}, .ops = {}}, {}, "size must be 0 bytes or more");
  refused({.buffers = {buffer("b", 0, 1, std::int64_t{1} << 62)}, .ops = {}}, {}, "below 2^62");
  LayoutOptions options;
  options.alignment = 48_B;
  refused(good, options, "alignment must be a power of two");
  options = {};
  options.capacity = Bytes(-1);
  refused(good, options, "capacity must be");
  options = {};
  options.time_limit = std::chrono::duration<double>(-1);
  refused(good, options, "time_limit must be");
}

}  // namespace
}  // namespace recoup
