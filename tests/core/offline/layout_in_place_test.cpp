// In-place outputs, and the independent checker of layouts.
#include <gtest/gtest.h>

#include "recoup/offline/layout.h"
#include "tests/core/support/layout_instances.h"

namespace recoup {
namespace {

BufferId id(std::uint32_t index) { return BufferId(index); }

// Image 0.15 MB -> Conv 3.2 MB -> ReLU 3.2 MB -> Pool 0.8 MB.
LayoutProblem conv_relu_pool() {
  return {.buffers = {buffer("image", 0, 2, 150'000), buffer("conv", 1, 3, 3'200'000),
                      buffer("relu", 2, 4, 3'200'000), buffer("pool", 3, 5, 800'000)},
          .ops = {{.name = "Conv", .step = 1, .reads = {id(0)}, .in_place = {}},
                  {.name = "ReLU", .step = 2, .reads = {id(1)}, .in_place = {{id(2), id(1)}}},
                  {.name = "Pool", .step = 3, .reads = {id(2)}, .in_place = {{id(3), id(2)}}}}};
}

LayoutOptions never_in_place(std::vector<std::string> ops) {
  LayoutOptions options;
  options.disable_inplace_ops = std::move(ops);
  return options;
}

TEST(InPlace, ConvReluPool) {
  const LayoutProblem problem = conv_relu_pool();
  const Layout layout = plan_layout(problem, "search");
  EXPECT_EQ(check_layout(problem, layout), "");
  EXPECT_EQ(layout.sum, 7'350'000_B);
  EXPECT_EQ(layout.size, 3'350'000_B);
  EXPECT_EQ(layout.in_place[2], id(1));
  EXPECT_EQ(layout.in_place[3], id(2));
  EXPECT_EQ(layout.offsets[2], layout.offsets[1]);

  const LayoutOptions none = never_in_place({"ReLU", "Pool"});
  const Layout apart = plan_layout(problem, "search", none);
  EXPECT_EQ(check_layout(problem, apart, none), "");
  EXPECT_EQ(apart.size, 6'400'000_B);
  EXPECT_FALSE(apart.in_place[2].valid());
  EXPECT_NE(check_layout(problem, layout, none), "") << "the checker knows what is disabled";
}

TEST(InPlace, OnlyIfItIsSafe) {
  const auto taken = [](const LayoutProblem& problem) {
    const Layout layout = plan_layout(problem, "ge");
    EXPECT_EQ(check_layout(problem, layout), "");
    return layout.in_place[2].valid();
  };
  EXPECT_TRUE(taken(conv_relu_pool()));

  LayoutProblem second_reader = conv_relu_pool();
  second_reader.ops.push_back({.name = "Sum", .step = 2, .reads = {id(1)}, .in_place = {}});
  EXPECT_FALSE(taken(second_reader));

  LayoutProblem lives_on = conv_relu_pool();
  lives_on.buffers[1].upper = 4;
  EXPECT_FALSE(taken(lives_on));

  LayoutProblem larger = conv_relu_pool();
  larger.buffers[2].size += 1_B;
  EXPECT_FALSE(taken(larger));

  LayoutProblem other_stream = conv_relu_pool();
  other_stream.buffers[2].stream = 1;
  EXPECT_FALSE(taken(other_stream));

  LayoutProblem born_before = conv_relu_pool();
  born_before.buffers[2].lower = 1;
  EXPECT_FALSE(taken(born_before));

  LayoutProblem read_twice_by_one = conv_relu_pool();  // x * x
  read_twice_by_one.ops[1].reads.push_back(id(1));
  EXPECT_TRUE(taken(read_twice_by_one));
}

TEST(InPlace, APlaceIsTakenOnce) {
  LayoutProblem problem = conv_relu_pool();
  problem.buffers.push_back(buffer("mask", 2, 6, 3'200'000));
  problem.ops[1].in_place.push_back({id(4), id(1)});
  const Layout layout = plan_layout(problem, "search");
  EXPECT_EQ(check_layout(problem, layout), "");
  EXPECT_EQ(layout.in_place[2], id(1));
  EXPECT_FALSE(layout.in_place[4].valid());
}

// A small output with a long life must not keep a large place when memory is short.
TEST(InPlace, NotIfItCostsMemory) {
  const LayoutProblem problem{
      .buffers = {buffer("large", 0, 2, 1000), buffer("small", 1, 9, 10),
                  buffer("later", 4, 6, 1005)},
      .ops = {{.name = "mean", .step = 1, .reads = {id(0)}, .in_place = {{id(1), id(0)}}}}};
  const Layout layout = plan_layout(problem, "search");
  EXPECT_FALSE(layout.in_place[1].valid());
  EXPECT_EQ(layout.size, 1015_B);
}

TEST(InPlace, RandomChainsAreSafe) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    LayoutProblem problem = random_layout(seed, {.count = 40, .streams = 2});
    // Every op makes one buffer at its birth and may overwrite its inputs.
    for (std::uint32_t output = 0; output < 40; ++output) {
      const LayoutTime step = problem.buffers[output].lower;
      LayoutOp op{
          .name = random() % 2 == 0 ? "add" : "mul", .step = step, .reads = {}, .in_place = {}};
      for (std::uint32_t input = 0; input < 40; ++input) {
        LayoutBuffer& read = problem.buffers[input];
        if (input != output && read.lower <= step && step < read.upper && random() % 3 == 0) {
          op.reads.push_back(id(input));
          op.in_place.push_back({id(output), id(input)});
          if (random() % 2 == 0) {
            read.upper = step + 1;
            std::erase_if(problem.ops, [&](const LayoutOp& other) {
              return other.step > step && std::find(other.reads.begin(), other.reads.end(),
                                                    id(input)) != other.reads.end();
            });
          }
        }
      }
      problem.ops.push_back(op);
    }
    for (const PlannerInfo& info : planners()) {
      const LayoutOptions options = without_clock(500);
      const Layout layout = plan_layout(problem, info.name, options);
      EXPECT_GE(layout.size, layout.bound);
      if (info.places) {
        EXPECT_EQ(check_layout(problem, layout, options), "") << info.name;
      }
    }
  }
}

TEST(InPlace, InvalidOpsAreRefused) {
  const auto message = [](const LayoutProblem& problem) -> std::string {
    try {
      plan_layout(problem, "ge");
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "";
  };
  LayoutProblem problem = conv_relu_pool();
  problem.ops[1].reads.push_back(id(9));
  EXPECT_EQ(message(problem), "op 'ReLU' names buffer 9, but the number of buffers is 4");
  problem = conv_relu_pool();
  problem.ops[1].reads = {id(0), id(1)};
  EXPECT_EQ(message(problem),
            "op 'ReLU' reads 'image' (buffer 0) at step 2, which is live in [0, 2)");
  problem = conv_relu_pool();
  problem.ops[1].in_place[0].input = id(0);
  EXPECT_NE(message(problem).find("op 'ReLU' does not read 'image'"), std::string::npos);
}

TEST(CheckLayout, FindsEveryKindOfFault) {
  LayoutProblem problem{
      .buffers = {buffer("a", 0, 2, 64), buffer("b", 1, 3, 64), buffer("c", 2, 4, 64)}, .ops = {}};
  LayoutOptions options;
  options.alignment = 64_B;
  const Layout good = plan_layout(problem, "ge", options);
  ASSERT_EQ(check_layout(problem, good, options), "");
  const auto fault = [&](auto spoil) {
    Layout bad = good;
    spoil(bad);
    return check_layout(problem, bad, options);
  };
  EXPECT_EQ(fault([](Layout& l) { l.offsets[1] = l.offsets[0]; }),
            "'a' (buffer 0) and 'b' (buffer 1) share bytes, but live at the same time");
  EXPECT_NE(fault([](Layout& l) { l.offsets[0] = Bytes(-64); }), "");
  EXPECT_NE(fault([](Layout& l) { l.offsets[0] += 1_B; }), "");
  EXPECT_NE(fault([](Layout& l) { l.size -= 1_B; }), "");
  EXPECT_NE(fault([](Layout& l) { l.offsets.pop_back(); }), "");
  EXPECT_NE(fault([](Layout& l) { l.in_place[2] = id(0); }), "");
  EXPECT_NE(fault([](Layout& l) { l.in_place[2] = id(77); }), "");
  options.capacity = 64_B;
  EXPECT_NE(check_layout(problem, good, options), "");
  options.capacity.reset();
  problem.buffers[2].stream = 1;
  EXPECT_EQ(check_layout(problem, good, options),
            "'a' (buffer 0) and 'c' (buffer 2) share bytes, but belong to different streams");
}

}  // namespace
}  // namespace recoup
