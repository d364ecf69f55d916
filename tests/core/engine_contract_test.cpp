// The rules of lineage, versions, freezes, death and pins, one hand-made program each. In the
// drawings [x] is resident, (x) evicted, x! a leaf; an arrow is an op.
#include <gtest/gtest.h>

#include <stdexcept>

#include "tests/core/engine_program.h"

namespace recoup::detail {
namespace {

constexpr Bytes kUnit = 1_KiB;

Bytes units(std::int64_t count) { return Bytes(count * kUnit.count()); }

// One unit is a block, nothing is measured, the policy takes the oldest.
Options options_of(std::int64_t budget_units) { return plain_options(units(budget_units)); }

class EngineContract : public testing::Test {
 protected:
  Program& start(std::int64_t budget_units) { return start(options_of(budget_units)); }
  Program& start(const Options& options) {
    program_.emplace(options);
    return *program_;
  }
  void TearDown() override {
    if (program_) {
      program_->check();
      program_->grow(program_->engine().options().budget + units(100));
      program_->expect_all();
      program_->check();
    }
  }

 private:
  std::optional<Program> program_;
};

//   x! -> [a] -> [b]    and c = f(b) needs a fourth unit of three: a goes
TEST_F(EngineContract, EvictsWhatDoesNotFitAndReplaysIt) {
  Program& p = start(3);
  const Tensor x = p.leaf(kUnit);
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

TEST_F(EngineContract, CountsHowOftenAValueCameBack) {
  Program& p = start(8);
  const Tensor x = p.leaf(kUnit);
  const Tensor a = p.op({x}, kUnit);
  for (std::uint32_t times = 0; times < 3; ++times) {
    EXPECT_EQ(p.engine().value(p.engine().current(p.id(a))).recomputes, times);
    EXPECT_TRUE(p.evict(a));
    p.expect(a);
  }
}

//   x! -> (a) -> (b) -> (c): c runs all three ops, and only c is anybody's: a and b are freed at
//   once
TEST_F(EngineContract, ReplaysThroughDeadValuesAndFreesThemAgain) {
  Program& p = start(8);
  const Tensor x = p.leaf(kUnit);
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

//   x! -> [a1] -> [b]           a.update()          x! -> (a1) -> [a2]    same address
//                                                          \---> [b]
TEST_F(EngineContract, AWriteKeepsTheOldVersionReplayable) {
  Program& p = start(8);
  const Tensor x = p.leaf(kUnit);
  const Tensor a = p.op({x}, kUnit);
  const Tensor b = p.op({a}, kUnit);
  const auto address = p.storage(a).offset;
  p.update(a, {b});
  EXPECT_EQ(p.storage(a).offset, address);
  EXPECT_FALSE(p.is_leaf(a));
  EXPECT_EQ(p.stats().freezes, 0);
  p.check();

  // b comes back from a1, made in a private buffer beside the live a2.
  EXPECT_TRUE(p.evict(b));
  p.expect(b);
  EXPECT_EQ(p.stats().replays, 2);
  EXPECT_EQ(p.storage(a).offset, address);

  // a2 needs a1 and b; a1's buffer becomes a2's, because nobody else waits for a1.
  EXPECT_TRUE(p.evict(a));
  p.expect(a);
  EXPECT_EQ(p.stats().replays, 4);
  EXPECT_EQ(p.stats().moves, 0);
  EXPECT_EQ(p.engine().charged(), units(3));
}

//   x! -> (a1) -> (a2)   y = f(a1) waits for a1 too: the writer gets a copy of it
//           \---> (y)    z = g(a2, y)
TEST_F(EngineContract, AnOldVersionThatOthersWaitForIsCopied) {
  for (const ReplayOrder order : {ReplayOrder::kMemory, ReplayOrder::kRecursive}) {
    Options options = options_of(8);
    options.replay_order = order;
    Program p(options);
    const Tensor x = p.leaf(kUnit);
    const Tensor a = p.op({x}, kUnit);
    const Tensor y = p.op({a}, kUnit);
    p.update(a);
    const Tensor z = p.op({a, y}, kUnit);
    const Tensor swapped = p.op({y, a}, kUnit);
    p.engine().user().evict_everything();
    EXPECT_EQ(p.engine().charged(), kUnit);
    p.expect(z);
    p.check();
    p.engine().user().evict_everything();
    p.expect(swapped);
    p.check();
    p.expect_all();
  }
}

//   x! -> [a1] -> [a2] -> [a3]   in one storage
TEST_F(EngineContract, AReplayedWriteTakesOverTheOldVersionsBuffer) {
  Program& p = start(8);
  const Tensor x = p.leaf(kUnit);
  const Tensor a = p.op({x}, kUnit);
  p.update(a);
  p.update(a, {x});
  EXPECT_TRUE(p.evict(a));
  const std::int64_t allocations = p.stats().allocations;
  p.expect(a);
  EXPECT_EQ(p.stats().replays, 3);
  EXPECT_EQ(p.stats().allocations, allocations + 1);
  EXPECT_EQ(p.stats().moves, 0);
  EXPECT_EQ(p.engine().charged(), units(2));
}

TEST_F(EngineContract, AnOverwriteNeedsNothingOfTheOldVersion) {
  Program& p = start(8);
  const Tensor x = p.leaf(kUnit);
  const Tensor a = p.op({x}, kUnit);
  p.overwrite(a, {x});
  EXPECT_EQ(p.stats().live_values, 2);  // x and the new a: the old one is nobody's
  EXPECT_TRUE(p.evict(a));
  p.expect(a);
  EXPECT_EQ(p.stats().replays, 1);
}

// b = f(p); c = g(b); del b; p.add_(1): c would be recomputed from the new p if it stayed
// evictable.
TEST_F(EngineContract, FreezesBehindValuesThatAreGone) {
  Program& p = start(8);
  const Tensor parameter = p.leaf(kUnit);
  const Tensor b = p.op({parameter}, kUnit);
  const Tensor c = p.op({b}, kUnit);
  p.drop(b);
  p.update(parameter);
  EXPECT_TRUE(p.is_leaf(c));
  EXPECT_TRUE(p.is_leaf(parameter));
  EXPECT_FALSE(p.evict(c));
  EXPECT_EQ(p.stats().live_values, 2);
  EXPECT_EQ(p.stats().live_ops, 0);
}

//   p! -> (b)    p changes: b is brought back first and stays
TEST_F(EngineContract, FreezeBringsBackWhatTheUserHolds) {
  Program& p = start(8);
  const Tensor parameter = p.leaf(kUnit);
  const Tensor b = p.op({parameter}, kUnit);
  EXPECT_TRUE(p.evict(b));
  p.update(parameter);
  EXPECT_TRUE(p.resident(b));
  EXPECT_TRUE(p.is_leaf(b));
  EXPECT_EQ(p.stats().freezes, 1);
  EXPECT_EQ(p.stats().leaf_copies, 0);
}

//   p! -> (b), and b would fill more than half of the budget: the old p is kept as a copy
TEST_F(EngineContract, AnExpensiveFreezeKeepsACopyInstead) {
  Program& p = start(7);
  const Tensor parameter = p.leaf(kUnit);
  const Tensor b = p.op({parameter}, units(4));
  EXPECT_TRUE(p.evict(b));
  p.update(parameter);
  EXPECT_FALSE(p.resident(b));
  EXPECT_EQ(p.stats().freezes, 0);
  EXPECT_EQ(p.stats().leaf_copies, 1);
  EXPECT_EQ(p.engine().charged(), units(2));
  p.check();
  p.expect(b);
  EXPECT_FALSE(p.is_leaf(b));
  p.expect(parameter);
  p.drop(b);
  EXPECT_EQ(p.engine().charged(), units(1));  // the copy went with the last that needed it
}

//   p! -> (b) (c) (d)    of 2 units each, budget 6: only two of them can be resident beside p
TEST_F(EngineContract, AFreezeThatDoesNotFitKeepsACopy) {
  Program& p = start(6);
  const Tensor parameter = p.leaf(units(2));
  for (int i = 0; i < 3; ++i) {
    p.evict(p.op({parameter}, units(2)));
  }
  p.update(parameter);
  EXPECT_EQ(p.stats().leaf_copies, 1);
  p.check();
  p.expect_all();
}

// An external storage keeps its address; its old content goes into the pool.
TEST_F(EngineContract, ACopyOfAnExternalLeafIsInThePool) {
  Program& p = start(7);
  const Tensor parameter = p.external(kUnit);
  const Tensor b = p.op({parameter}, units(4));
  EXPECT_TRUE(p.evict(b));
  p.update(parameter);
  EXPECT_EQ(p.stats().leaf_copies, 1);
  EXPECT_EQ(p.stats().external_bytes, kUnit.count());
  EXPECT_EQ(p.engine().charged(), units(2));
  p.check();
  p.expect_all();
}

TEST_F(EngineContract, AWrittenLeafIsALeaf) {
  Program& p = start(8);
  const Tensor x = p.leaf(kUnit);
  const Tensor outside = p.external(kUnit);
  p.update(x, {outside});
  p.update(outside, {x});
  EXPECT_TRUE(p.is_leaf(x));
  EXPECT_TRUE(p.is_leaf(outside));
  EXPECT_EQ(p.stats().live_ops, 0);
  // What replaces all of a leaf in the pool can be replayed: nothing of the leaf is needed for it.
  p.overwrite(x, {outside});
  EXPECT_TRUE(p.evict(x));
  p.expect(x);
}

//   x! -> [a] -> [b]      a dies: b does not need it            -> a is freed
//   x! -> [a] -> (b)      a dies: b would have to be made of it -> a stays until b is back
TEST_F(EngineContract, ADeadValueIsKeptOnlyWhileItIsUseful) {
  Program& p = start(8);
  const Tensor x = p.leaf(kUnit);
  const Tensor a = p.op({x}, kUnit);
  p.op({a}, kUnit);
  p.drop(a);
  EXPECT_EQ(p.engine().charged(), units(2));
  EXPECT_EQ(p.stats().drops, 1);

  const Tensor useful = p.op({x}, kUnit);
  const Tensor c = p.op({useful}, kUnit);
  EXPECT_TRUE(p.evict(c));
  p.drop(useful);
  EXPECT_EQ(p.engine().charged(), units(3));
  p.check();
  p.expect(c);
  EXPECT_EQ(p.stats().replays, 1);
  EXPECT_EQ(p.engine().charged(), units(3));  // c came and what it was made of went
  EXPECT_EQ(p.stats().drops, 2);
}

// The same with an evicted dead value between: usefulness reaches through (d).
//   x! -> [a] -> (d) -> (c)
TEST_F(EngineContract, UsefulnessReachesThroughEvictedValues) {
  Program& p = start(8);
  const Tensor x = p.leaf(kUnit);
  const Tensor a = p.op({x}, kUnit);
  const Tensor d = p.op({a}, kUnit);
  const Tensor c = p.op({d}, kUnit);
  p.evict(c);
  p.evict(d);
  p.drop(d);
  p.drop(a);
  EXPECT_EQ(p.engine().charged(), units(2));
  p.drop(c);
  EXPECT_EQ(p.engine().charged(), units(1));
  EXPECT_EQ(p.stats().live_ops, 0);
}

TEST_F(EngineContract, WithoutUsefulnessTheDeadGoAtOnce) {
  Options options = options_of(8);
  options.usefulness = false;
  Program& p = start(options);
  const Tensor x = p.leaf(kUnit);
  const Tensor a = p.op({x}, kUnit);
  const Tensor c = p.op({a}, kUnit);
  EXPECT_TRUE(p.evict(c));
  p.drop(a);
  EXPECT_EQ(p.engine().charged(), units(1));
  p.expect(c);
  EXPECT_EQ(p.stats().replays, 2);
}

//   x! (dead) -> [a, pinned]    room is needed: a becomes a leaf and x goes, before any error
TEST_F(EngineContract, DeadLeavesGoBeforeAnError) {
  Program& p = start(5);
  const Tensor x = p.leaf(units(2));
  const Tensor a = p.op({x}, units(3));
  p.drop(x);
  EXPECT_EQ(p.engine().charged(), units(5));  // what hangs on it is larger than it
  p.pin(a);
  p.op({}, units(2));
  EXPECT_TRUE(p.is_leaf(a));
  EXPECT_EQ(p.engine().charged(), units(5));
  p.unpin(a);
}

// What hangs on a dead leaf is no larger than the leaf: not worth keeping.
TEST_F(EngineContract, DeadLeavesThatHoldLittleGoAtOnce) {
  Program& p = start(5);
  const Tensor x = p.leaf(units(2));
  const Tensor a = p.op({x}, units(2));
  p.drop(x);
  EXPECT_EQ(p.engine().charged(), units(2));
  EXPECT_TRUE(p.is_leaf(a));
}

TEST_F(EngineContract, AbandonedExternalsAreSweptBeforeAnError) {
  Program& p = start(4);
  const Tensor x = p.external(units(2));
  p.abandon(x);
  p.op({}, units(3));
  EXPECT_EQ(p.stats().external_bytes, 0);
  EXPECT_TRUE(p.storage(x).forgotten);
}

// A dead external leaf is charged, and its bytes kept, while something can only be made from it.
TEST_F(EngineContract, ADeadExternalLeafIsKeptForItsDependents) {
  Program& p = start(8);
  const Tensor x = p.external(kUnit);
  const Tensor a = p.op({x}, units(3));
  EXPECT_TRUE(p.evict(a));
  p.drop(x);
  EXPECT_FALSE(p.storage(x).forgotten);
  EXPECT_EQ(p.engine().charged(), kUnit);
  p.expect(a);
  p.drop(a);
  EXPECT_TRUE(p.storage(x).forgotten);
  EXPECT_EQ(p.engine().charged(), Bytes(0));
}

//   x! -> [a] -> (b)    a's address gets out: b is frozen, a stays where it is, readers make leaves
TEST_F(EngineContract, AnEscapeFreezesAndFixes) {
  Program& p = start(8);
  const Tensor x = p.leaf(kUnit);
  const Tensor a = p.op({x}, kUnit);
  const Tensor b = p.op({a}, kUnit);
  EXPECT_TRUE(p.evict(b));
  p.engine().user().escape(p.id(a));
  EXPECT_EQ(p.stats().escapes, 1);
  EXPECT_TRUE(p.resident(b));
  EXPECT_FALSE(p.evict(b));
  EXPECT_FALSE(p.evict(a));
  p.foreign_write(a);
  const Tensor c = p.op({a}, kUnit);
  EXPECT_TRUE(p.is_leaf(c));
  p.foreign_write(a);
  const auto address = p.storage(a).offset;
  p.update(a, {b});
  p.foreign_write(a);
  p.drop(x);
  (void)p.engine().defragment({}, Bytes(0));
  EXPECT_EQ(p.storage(a).offset, address);
  p.check();
  p.drop(a);
  EXPECT_EQ(p.engine().charged(), units(2));
}

// Bringing an evicted storage back for an escape; and one whose bytes somebody shares.
TEST_F(EngineContract, WhatWillNotGiveUpItsBytesIsForsaken) {
  Program& p = start(3);
  const Tensor x = p.leaf(kUnit);
  const Tensor a = p.op({x}, kUnit);
  EXPECT_TRUE(p.evict(a));
  p.engine().user().escape(p.id(a));
  EXPECT_TRUE(p.resident(a));
  const Tensor b = p.op({x}, kUnit);
  p.storage(b).shared = true;
  EXPECT_FALSE(p.evict(b));
  EXPECT_TRUE(p.is_leaf(b));
  EXPECT_TRUE(p.value(b).escaped);
  p.check();
  EXPECT_THROW(p.op({x}, kUnit), OutOfBudget);
}

TEST_F(EngineContract, PinsHoldThroughWrites) {
  Program& p = start(4);
  const Tensor x = p.leaf(kUnit);
  const Tensor a = p.op({x}, kUnit);
  EXPECT_TRUE(p.evict(a));
  p.pin(a);  // brings it back
  p.pin(a);
  const auto address = p.storage(a).offset;
  EXPECT_FALSE(p.evict(a));
  p.update(a, {x});
  EXPECT_FALSE(p.evict(a));
  p.op({x}, kUnit);
  p.op({x}, kUnit);
  (void)p.engine().defragment({}, Bytes(0));
  EXPECT_EQ(p.storage(a).offset, address);
  EXPECT_EQ(p.engine().user().pinned().size(), 2U);  // x and a
  p.unpin(a);
  EXPECT_FALSE(p.evict(a));
  p.unpin(a);
  EXPECT_TRUE(p.evict(a));
}

// A pinned leaf whose old version is kept as a copy: the pin stays with the storage.
TEST_F(EngineContract, PinsHoldThroughACopyOfTheOldVersion) {
  Program& p = start(7);
  const Tensor parameter = p.leaf(kUnit);
  const Tensor b = p.op({parameter}, units(4));
  p.pin(parameter);
  const auto address = p.storage(parameter).offset;
  EXPECT_TRUE(p.evict(b));
  p.update(parameter);
  EXPECT_EQ(p.stats().leaf_copies, 1);
  EXPECT_EQ(p.storage(parameter).offset, address);
  p.check();
  p.unpin(parameter);
}

TEST_F(EngineContract, AStorageMayDieWhileItIsPinned) {
  Program& p = start(8);
  const Tensor x = p.leaf(kUnit);
  const Tensor a = p.op({x}, kUnit);
  p.device().during_kernel = [&] {
    p.drop(a);
    p.check();
    EXPECT_EQ(p.engine().charged(), units(3));
  };
  const Call call{.arguments = {{.tensor = x}, {.tensor = a}}, .fresh = {kUnit}};
  // The interpreter has nothing to compute a's reader from once a is gone, so look at the books
  // only.
  p.device().fail_kernel(1);
  EXPECT_THROW(p.run(call), KernelFailed);
  EXPECT_EQ(p.engine().charged(), units(1));
  EXPECT_EQ(p.stats().live_values, 1);
}

// In a replay, what dies may be the target itself.
TEST_F(EngineContract, AStorageMayDieWhileItIsBroughtBack) {
  Program& p = start(8);
  const Tensor x = p.leaf(kUnit);
  const Tensor a = p.op({x}, kUnit);
  const Tensor b = p.op({a}, kUnit);
  p.engine().user().evict_everything();
  p.device().during_kernel = [&] {
    p.drop(a);
    p.drop(x);
  };
  p.expect(b);
  p.check();
  EXPECT_LE(p.engine().charged(), units(2));
}

//   x! -> (a1) -> [a2!]    the update of a stopped half way: what it holds is all there is
//           \---> (b)      and b still comes from a1
TEST_F(EngineContract, AHalfWayFailureMakesALeaf) {
  Program& p = start(8);
  const Tensor x = p.leaf(kUnit);
  const Tensor a = p.op({x}, kUnit);
  const Tensor b = p.op({a}, kUnit);
  EXPECT_TRUE(p.evict(b));
  const Call call{.arguments = {{.tensor = a, .access = Access::kUpdate}, {.tensor = x}},
                  .fresh = {kUnit},
                  .workspace = {kUnit},
                  .stops_half_way = true};
  EXPECT_THROW(p.run(call), KernelFailed);
  EXPECT_TRUE(p.is_leaf(a));
  EXPECT_EQ(p.engine().charged(), units(2));
  p.check();
  p.expect(b);
  p.expect(a);
}

// A replay of an in-place write fails half way with the old version's buffer in its hands: the old
// version is made again the next time.
TEST_F(EngineContract, AReplayThatFailsHalfWayLosesNothing) {
  Program& p = start(8);
  const Tensor x = p.leaf(kUnit);
  const Tensor a = p.op({x}, kUnit);
  p.update(a, {x});
  EXPECT_TRUE(p.evict(a));
  p.device().fail_kernel(2);
  EXPECT_THROW(p.expect(a), KernelFailed);
  p.check();
  EXPECT_EQ(p.engine().charged(), kUnit);
  p.expect(a);
}

TEST_F(EngineContract, SmallResultsAreLeaves) {
  Program& p = start(8);
  const Tensor x = p.leaf(kUnit);
  const auto made = p.run({.arguments = {{.tensor = x}}, .fresh = {64_B, 65_B}});
  EXPECT_TRUE(p.is_leaf(made[0]));
  EXPECT_FALSE(p.is_leaf(made[1]));
  EXPECT_TRUE(p.evict(made[1]));
  p.expect(made[1]);
  const Tensor only = p.op({x}, 64_B);
  EXPECT_TRUE(p.is_leaf(only));
  EXPECT_EQ(p.stats().live_ops, 1);
}

// One op, two outputs: getting one back brings the other back when the user holds it.
TEST_F(EngineContract, OutputsComeBackTogether) {
  Program& p = start(8);
  const Tensor x = p.leaf(kUnit);
  const auto two = p.run({.arguments = {{.tensor = x}}, .fresh = {kUnit, kUnit}});
  p.engine().user().evict_everything();
  p.expect(two[1]);
  EXPECT_TRUE(p.resident(two[0]));
  EXPECT_TRUE(p.evict(two[1]));
  p.drop(two[0]);
  p.expect(two[1]);  // the first one's record is gone; its block is freed
  EXPECT_EQ(p.engine().charged(), units(2));
}

// Evicts all the time. Returns how many candidates were looked at.
std::int64_t visits(std::optional<bool> sampling, std::optional<bool> kinetic) {
  Program program({.budget = 8_KiB,
                   .small_filter = {},
                   .sampling = sampling,
                   .kinetic = kinetic,
                   .small_leaf = 64_B});
  const Tensor leaf = program.op({}, 64_B);
  for (int i = 0; i < 1000; ++i) {
    program.op({leaf}, Bytes(65 + i % 7));
  }
  return program.engine().stats().candidates_visited;
}

TEST_F(EngineContract, AKineticOrderIsTheDefaultUnlessASampleIsAskedFor) {
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

TEST_F(EngineContract, AKineticOrderIsRefusedWhereThereIsNone) {
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

}  // namespace
}  // namespace recoup::detail
