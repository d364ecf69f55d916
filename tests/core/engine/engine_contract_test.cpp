// The rules of eviction and replay, with one hand-written program each.
#include "tests/core/support/engine_contract.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace recoup::detail {
namespace {

// x! -> [a] -> [b], and c = f(b) needs a fourth unit in a budget of three: a is evicted.
TEST_F(EngineContract, EvictsAndReplays) {
  Program& p = start(3);
  const Tensor x = p.source(kUnit);
  const Tensor a = p.op({x}, kUnit);
  const Tensor b = p.op({a}, kUnit);
  const Tensor c = p.op({b}, kUnit);
  EXPECT_FALSE(p.resident(a));
  EXPECT_EQ(p.stats().evictions, 1);
  EXPECT_EQ(p.stats().evicted_bytes, kUnit.count());
  p.check();
  p.expect(a);
  EXPECT_EQ(p.stats().replays, 1);
  EXPECT_EQ(p.stats().evictions, 2);
  p.expect(b);
  p.expect(c);
  EXPECT_EQ(p.stats().peak_bytes, units(3).count());
}

TEST_F(EngineContract, CountsTheReplaysOfAValue) {
  Program& p = start(8);
  const Tensor x = p.source(kUnit);
  const Tensor a = p.op({x}, kUnit);
  for (std::uint32_t times = 0; times < 3; ++times) {
    EXPECT_EQ(p.engine().value(p.engine().current(p.id(a))).recomputes, times);
    EXPECT_TRUE(p.evict(a));
    p.expect(a);
  }
}

// x! -> (a) -> (b) -> (c): restoring c runs all three ops. The dead a and b are freed at once.
TEST_F(EngineContract, ReplaysThroughDeadValuesAndFreesThemAgain) {
  Program& p = start(8);
  const Tensor x = p.source(kUnit);
  const Tensor a = p.op({x}, kUnit);
  const Tensor b = p.op({a}, kUnit);
  const Tensor c = p.op({b}, kUnit);
  p.drop(a);
  p.drop(b);
  EXPECT_EQ(p.engine().charged(), units(2));
  EXPECT_TRUE(p.evict(c));
  p.expect(c);
  EXPECT_EQ(p.stats().replays, 3);
  EXPECT_EQ(p.engine().charged(), units(2));
  EXPECT_EQ(p.stats().live_values, 4);
}

// x! -> (a1) -> [a2!] and (a1) -> (b): the update of a failed half way, so a2 is a source. b is
// still computed from a1.
TEST_F(EngineContract, AFailedWriteLeavesANonRecomputableValue) {
  Program& p = start(8);
  const Tensor x = p.source(kUnit);
  const Tensor a = p.op({x}, kUnit);
  const Tensor b = p.op({a}, kUnit);
  EXPECT_TRUE(p.evict(b));
  const Call call{.arguments = {{.tensor = a, .access = Access::kUpdate}, {.tensor = x}},
                  .fresh = {kUnit},
                  .workspace = {kUnit},
                  .stops_half_way = true};
  EXPECT_THROW(p.run(call), KernelFailed);
  EXPECT_TRUE(p.non_recomputable(a));
  EXPECT_EQ(p.engine().charged(), units(2));
  p.check();
  p.expect(b);
  p.expect(a);
}

// The replay of an in-place write fails half way in the buffer of the old version. The next replay
// restores the old version again.
TEST_F(EngineContract, AReplayThatFailsHalfWayLosesNothing) {
  Program& p = start(8);
  const Tensor x = p.source(kUnit);
  const Tensor a = p.op({x}, kUnit);
  p.update(a, {x});
  EXPECT_TRUE(p.evict(a));
  p.device().fail_kernel(2);
  EXPECT_THROW(p.expect(a), KernelFailed);
  p.check();
  EXPECT_EQ(p.engine().charged(), kUnit);
  p.expect(a);
}

TEST_F(EngineContract, SmallResultsAreNonRecomputable) {
  Program& p = start(8);
  const Tensor x = p.source(kUnit);
  const auto made = p.run({.arguments = {{.tensor = x}}, .fresh = {64_B, 65_B}});
  EXPECT_TRUE(p.non_recomputable(made[0]));
  EXPECT_FALSE(p.non_recomputable(made[1]));
  EXPECT_TRUE(p.evict(made[1]));
  p.expect(made[1]);
  const Tensor only = p.op({x}, 64_B);
  EXPECT_TRUE(p.non_recomputable(only));
  EXPECT_EQ(p.stats().live_ops, 1);
}

// Restoring one of two outputs of an op restores the other one too if the user holds it.
TEST_F(EngineContract, OutputsAreRestoredTogether) {
  Program& p = start(8);
  const Tensor x = p.source(kUnit);
  const auto two = p.run({.arguments = {{.tensor = x}}, .fresh = {kUnit, kUnit}});
  p.engine().user().evict_everything();
  p.expect(two[1]);
  EXPECT_TRUE(p.resident(two[0]));
  EXPECT_TRUE(p.evict(two[1]));
  p.drop(two[0]);
  p.expect(two[1]);  // the first output has no record any more; its block is freed
  EXPECT_EQ(p.engine().charged(), units(2));
}

// Runs a program that evicts all the time. Returns the number of visited candidates.
std::int64_t visits(std::optional<bool> sampling, std::optional<bool> kinetic) {
  Program program({.budget = 8_KiB,
                   .small_filter = {},
                   .sampling = sampling,
                   .kinetic = kinetic,
                   .small_result_bytes = 64_B});
  const Tensor source = program.op({}, 64_B);
  for (int i = 0; i < 1000; ++i) {
    program.op({source}, Bytes(65 + i % 7));
  }
  return program.engine().stats().candidates_visited;
}

TEST_F(EngineContract, AKineticOrderIsTheDefaultUnlessSamplingIsSet) {
  const std::int64_t scan = visits({}, false);
  const std::int64_t sample = visits(true, false);
  const std::int64_t order = visits(true, true);
  EXPECT_LT(sample, scan);
  EXPECT_LT(order, scan);
  EXPECT_NE(order, sample);
  EXPECT_EQ(visits({}, {}), order);
  EXPECT_EQ(visits(false, {}), order);
  EXPECT_EQ(visits(true, {}), sample);
}

TEST_F(EngineContract, AKineticOrderIsRefusedForPoliciesWithoutOne) {
  for (const PolicyInfo& info : policies()) {
    if (info.simulated_only) {
      continue;
    }
    const Options options{.budget = 1_MiB,
                          .policy = std::string(info.name),
                          .small_filter = {},
                          .sampling = {},
                          .kinetic = true};
    if (info.has_order) {
      EXPECT_NO_THROW(Program{options}) << info.name;
    } else {
      EXPECT_THROW(Program{options}, std::invalid_argument) << info.name;
    }
  }
}

// x! -> [a] -> [b] in a budget of two: b takes the block of a, and a that of b when it is replayed.
TEST_F(EngineContract, AResultThatDoesNotFitTakesTheBlockOfAnOperand) {
  for (const bool allowed : {true, false}) {
    Options options = options_of(2);
    options.reuse_operands = allowed;
    Program& p = start(options);
    const Tensor x = p.source(kUnit);
    const Tensor a = p.op({x}, kUnit);
    const Call call{.arguments = {{.tensor = a}}, .fresh = {kUnit}, .overwritable = true};
    if (!allowed) {
      EXPECT_THROW(p.run(call), OutOfBudget);
      EXPECT_TRUE(p.resident(a));
      continue;
    }
    const Tensor b = p.run(call).front();
    EXPECT_EQ(p.stats().in_place_results, 1);
    EXPECT_FALSE(p.resident(a));
    EXPECT_EQ(p.engine().charged(), units(2));
    p.check();
    p.expect(b);
    p.expect(a);
    EXPECT_FALSE(p.resident(b));
    p.expect(b);  // its replay takes the block of a, too
    EXPECT_EQ(p.stats().in_place_results, 2);
    EXPECT_EQ(p.stats().peak_bytes, units(2).count());
  }
}

// An operand that cannot be restored keeps its block, and so does one of another size.
TEST_F(EngineContract, AResultDoesNotTakeTheBlockOfASource) {
  Program& p = start(3);
  const Tensor x = p.source(kUnit);
  const Tensor a = p.op({x}, units(2));
  EXPECT_THROW(
      p.run({.arguments = {{.tensor = x}, {.tensor = a}}, .fresh = {kUnit}, .overwritable = true}),
      OutOfBudget);
  EXPECT_TRUE(p.resident(x) && p.resident(a));
  EXPECT_EQ(p.stats().in_place_results, 0);
}

}  // namespace
}  // namespace recoup::detail
