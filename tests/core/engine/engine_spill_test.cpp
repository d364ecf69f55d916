// The rules of the spill tier, one hand-made program each. In the drawings [x] is resident, (x)
// evicted, {x} spilled, x! a non-recomputable value.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/core/support/engine_contract.h"

namespace recoup::detail {
namespace {

constexpr double kCheapTier = 0.001;
constexpr double kDearTier = 1000;

class EngineSpill : public EngineContract {
 protected:
  static Options options(int budget, int tier, double ns_per_byte) {
    Options options = plain_options(units(budget));
    options.spill = units(tier);
    options.spill_unit = kUnit;
    options.spill_write_ns_per_byte = options.spill_read_ns_per_byte = ns_per_byte;
    return options;
  }
};

//   a! b! c!   room for two: the one that was not used for longest is spilled
TEST_F(EngineSpill, ASourceIsSpilledAndFetched) {
  Program& p = start(options(2, 4, kDearTier));
  const Tensor a = p.source(kUnit);
  const Tensor b = p.source(kUnit);
  const Tensor c = p.source(kUnit);
  EXPECT_TRUE(p.value(a).spilled());
  EXPECT_TRUE(p.resident(b) && p.resident(c));
  EXPECT_EQ(p.stats().spills, 1);
  p.expect(a);
  EXPECT_EQ(p.stats().fetches, 1);
  EXPECT_LE(p.stats().spill_peak_bytes, (4 * kUnit.count()));
  p.update(b);
  p.overwrite(c);
  p.expect_all();
  p.drop(a);
  p.drop(b);
  p.drop(c);
  p.check();
  p.engine().user().materialize_all();
  EXPECT_EQ(p.engine().context().tier.used(), Bytes(0));
}

//   x! -> [a]   what costs more to replay than to copy is spilled; nothing replays then
TEST_F(EngineSpill, TheCheaperWayIsTaken) {
  for (const bool cheap : {true, false}) {
    Program& p = start(options(8, 8, cheap ? kCheapTier : kDearTier));
    const Tensor x = p.source(kUnit);
    const Tensor a = p.op({x}, kUnit);
    p.evict(a);
    EXPECT_EQ(p.value(a).spilled(), cheap);
    EXPECT_EQ(p.value(a).evicted(), !cheap);
    p.expect(a);
    EXPECT_EQ(p.stats().replays, cheap ? 0 : 1);
    EXPECT_EQ(p.stats().fetches, cheap ? 1 : 0);
  }
}

//   x! -> {a} [b] [c]   room for three of four: `lru-copy` copies what a replay would cost less
TEST_F(EngineSpill, APolicyMaySayHowAVictimIsGotBack) {
  for (const bool copies : {true, false}) {
    Options chosen = options(3, 8, kDearTier);
    chosen.policy = copies ? "lru-copy" : "lru";
    Program& p = start(chosen);
    const Tensor x = p.source(kUnit);
    const Tensor a = p.op({x}, kUnit);
    static_cast<void>(p.op({x}, kUnit));
    static_cast<void>(p.op({x}, kUnit));
    EXPECT_EQ(p.value(a).spilled(), copies);
    EXPECT_EQ(p.value(a).evicted(), !copies);
    p.expect_all();
  }
}

//   x! -> {a} -> (b)    x changes: b is made from a, which x does not change any more
TEST_F(EngineSpill, ASpilledValueNeedsNothingThatItWasMadeFrom) {
  Program& p = start(options(8, 8, kCheapTier));
  const Tensor x = p.source(kUnit);
  const Tensor a = p.op({x}, kUnit);
  p.evict(a);
  ASSERT_TRUE(p.value(a).spilled());
  p.update(x);
  EXPECT_EQ(p.stats().replays, 0);
  p.expect_all();
  EXPECT_TRUE(p.non_recomputable(a));
}

// A kernel may write what it does not name. Where nobody compares, what one has had is written
// anew.
TEST_F(EngineSpill, WithoutComparisonAUseEndsTheCopy) {
  for (const bool compares : {true, false}) {
    Options with = options(8, 8, kDearTier);
    with.spill_compares = compares;
    Program& p = start(with);
    const Tensor a = p.source(kUnit);
    p.evict(a);
    p.expect(a);  // to look at it is no use
    EXPECT_TRUE(p.value(a).clean());
    p.evict(a);
    EXPECT_EQ(p.stats().clean_spills, 1);
    (void)p.op({a}, kUnit);
    EXPECT_EQ(p.value(a).clean(), compares);
    p.evict(a);
    EXPECT_EQ(p.stats().spills, compares ? 1 : 2);
    EXPECT_EQ(p.stats().clean_spills, compares ? 2 : 1);
    p.expect_all();
  }
}

//   a! -> {b} -> (c)   b changes: c goes on from the copy, which is of before
TEST_F(EngineSpill, WhatHangsOnAnOldVersionGoesOnFromItsCopyWithoutComparison) {
  Options with = options(8, 8, kDearTier);
  with.spill_compares = false;
  Program& p = start(with);
  const Tensor a = p.source(kUnit);
  const Tensor b = p.op({a}, kUnit);
  const Tensor c = p.op({b}, kUnit);
  p.evict(a);
  p.evict(c);
  p.update(a);
  p.update(b);
  p.expect_all();
  p.check();
}

TEST_F(EngineSpill, WhatHasNoRoomThereIsReplayedOrStays) {
  Program& p = start(options(3, 1, kCheapTier));
  const Tensor a = p.source(kUnit);
  const Tensor b = p.op({a}, kUnit);
  const Tensor c = p.op({b}, kUnit);
  const Tensor d = p.op({c}, kUnit);
  const Tensor e = p.op({d}, kUnit);
  EXPECT_EQ(p.engine().context().tier.used(), kUnit);
  p.expect_all();
  p.check();
  EXPECT_LE(p.stats().spill_peak_bytes, kUnit.count());
  EXPECT_GT(p.stats().replays, 0);
  p.drop(e);
  // What was refused is taken when there is room again.
  p.drop(b);
  p.drop(c);
  p.drop(d);
  const Tensor f = p.source(kUnit);
  const Tensor g = p.op({a, f}, kUnit);
  (void)p.op({g}, kUnit);
  EXPECT_EQ(p.engine().context().tier.used(), kUnit);
  p.expect_all();
}

TEST_F(EngineSpill, ADiskThatCannotBeWrittenIsNotAskedAgain) {
  Program& p = start(options(3, 8, kCheapTier));
  const Tensor a = p.source(kUnit);
  const Tensor b = p.op({a}, kUnit);
  const Tensor c = p.op({b}, kUnit);
  p.device().fail_spill(1);
  (void)p.op({c}, kUnit);  // b is evicted in the stead of a
  EXPECT_EQ(p.stats().spills, 0);
  EXPECT_FALSE(p.engine().context().tier.open());
  p.expect_all();
  EXPECT_EQ(p.stats().spills, 0);
  EXPECT_THROW((void)p.op({a, b, c}, kUnit), OutOfBudget);
  p.check();
}

TEST_F(EngineSpill, WhatCannotBeReadIsStillThere) {
  Program& p = start(options(2, 8, kCheapTier));
  const Tensor a = p.source(kUnit);
  const Tensor b = p.source(kUnit);
  const Tensor c = p.source(kUnit);
  ASSERT_TRUE(p.value(a).spilled());
  p.device().fail_fetch(1);
  EXPECT_THROW((void)p.op({a}, kUnit), FetchFailed);
  EXPECT_TRUE(p.value(a).spilled());
  p.check();
  p.expect(b);
  p.expect(c);
  p.expect(a);
}

TEST_F(EngineSpill, WhatCannotBeReadIsReplayedWhereThatCanBe) {
  Program& p = start(options(8, 8, kCheapTier));
  const Tensor x = p.source(kUnit);
  const Tensor a = p.op({x}, kUnit);
  const Tensor b = p.op({a}, kUnit);
  p.evict(a);
  p.evict(b);
  ASSERT_TRUE(p.value(a).spilled() && p.value(b).spilled());
  p.device().fail_fetch(1);
  p.expect(b);
  EXPECT_EQ(p.stats().unread_copies, 1);
  EXPECT_EQ(p.stats().replays, 1);
  EXPECT_EQ(p.stats().fetches, 1);
  p.check();
  p.expect_all();
}

//   x! -> (a)   what is brought back for the escape takes the place of x, unless x has its own
TEST_F(EngineSpill, WhatEscapesHasItsBytes) {
  Program& p = start(options(3, 8, kDearTier));
  const Tensor x = p.source(kUnit);
  const Tensor a = p.op({x}, kUnit);
  p.source(kUnit);
  p.evict(a);
  p.source(kUnit);
  p.source(kUnit);
  p.escape(x);
  EXPECT_TRUE(p.resident(x));
  p.foreign_write(x);
  p.check();
  p.expect(a);
  p.expect(x);
}

// A replay whose inputs are leaves has room for one of them and for what it makes.
TEST_F(EngineSpill, TheFloorIsTheLargestOp) {
  Program& p = start(options(3, 64, kDearTier));
  std::vector<Tensor> sources;
  std::vector<Tensor> made;
  for (int i = 0; i < 12; ++i) {
    sources.push_back(p.source(kUnit));
  }
  for (int round = 0; round < 3; ++round) {
    for (std::size_t i = 1; i < sources.size(); ++i) {
      made.push_back(p.op({sources[i - 1], sources[i]}, kUnit));
      p.update(sources[i], {made.back()});
    }
  }
  p.expect_all();
  p.check();
  EXPECT_LE(p.stats().peak_bytes, units(3).count());
}

// The end of a scope: all that lives has to be there at once.
TEST_F(EngineSpill, WhatLivesAtTheEndFitsOrTheErrorSaysSo) {
  Program& p = start(options(2, 8, kCheapTier));
  for (int i = 0; i < 3; ++i) {
    (void)p.source(kUnit);
  }
  EXPECT_THROW(p.engine().user().materialize_all(), OutOfBudget);
  p.check();
  p.grow(units(3));
  p.engine().user().materialize_all();
  EXPECT_TRUE(p.engine().user().materialized());
  EXPECT_EQ(p.engine().context().tier.used(), Bytes(0));
}

// What cannot be read at the end takes nothing else with it.
TEST_F(EngineSpill, WhatCannotBeReadAtTheEndIsAllThatIsMissing) {
  Options some = options(2, 8, kCheapTier);
  Program& p = start(some);
  std::vector<Tensor> made;
  for (int i = 0; i < 5; ++i) {
    made.push_back(p.source(kUnit));
  }
  p.grow(units(5));
  p.engine().set_test_aids({.fail_fetch = 2, .persistent = true});
  EXPECT_THROW(p.engine().user().materialize_all(), InjectedFault);
  p.check();
  EXPECT_EQ(std::count_if(made.begin(), made.end(), [&](Tensor t) { return p.resident(t); }), 3);
  p.engine().set_test_aids({});
  p.engine().user().materialize_all();
  EXPECT_TRUE(p.engine().user().materialized());
  p.expect_all();
}

}  // namespace
}  // namespace recoup::detail
