// The rules of the spill tier, with one hand-written program each. In drawings, [x] is resident,
// (x) is evicted, {x} is spilled, and x! is a non-recomputable value.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "tests/core/support/engine_contract.h"

namespace recoup::detail {
namespace {

constexpr double kCheapTier = 0.001;
constexpr double kExpensiveTier = 1000;
constexpr double kSlowTier = 10;  // a write takes longer than many ops

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

// a! b! c!, in a budget of two: the least recently used one is spilled.
TEST_F(EngineSpill, ASourceIsSpilledAndFetched) {
  Program& p = start(options(2, 4, kExpensiveTier));
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

// x! -> [a]: a value whose replay costs more than a copy is spilled, and is not replayed then.
TEST_F(EngineSpill, EvictsByTheCheaperMethod) {
  for (const bool cheap : {true, false}) {
    Program& p = start(options(8, 8, cheap ? kCheapTier : kExpensiveTier));
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

// [a] [t]: both have an expensive replay, and t is too small for the tier. The copy of a is
// cheaper, although a replay of t alone would free enough.
TEST_F(EngineSpill, ASmallValueWithAnExpensiveReplayStays) {
  Program& p = start(options(3, 8, kCheapTier));
  Call make{.arguments = {}, .fresh = {kUnit}};
  make.cost = Nanoseconds(std::chrono::seconds(1));
  const Tensor a = p.run(make).front();
  make.fresh = {128_B};
  const Tensor t = p.run(make).front();
  static_cast<void>(p.op({}, units(2)));
  EXPECT_TRUE(p.value(a).spilled());
  EXPECT_TRUE(p.resident(t));
}

// a! w! b! [x]: w is being written when a and b are released, and two contiguous units are needed.
// To wait for the write is cheaper than to evict x, but not than to evict [c].
TEST_F(EngineSpill, WaitsForACopyThatIsInTheWayIfThatIsCheapest) {
  for (const bool has_c : {false, true}) {
    Program& p = start(options(has_c ? 17 : 15, 32, kSlowTier));
    const Tensor a = p.source(kUnit);
    const Tensor w = p.source(kUnit);
    const Tensor b = p.source(kUnit);
    p.evict(p.op({}, kUnit));  // values are written early after evictions
    Call make_x{.arguments = {{a}, {b}}, .fresh = {units(12)}};
    make_x.cost = Nanoseconds(std::chrono::seconds(1));
    const Tensor x = p.run(make_x).front();
    ASSERT_TRUE(p.value(w).copying);
    const Tensor c = has_c ? p.op({}, units(2)) : a;
    p.drop(a);
    p.drop(b);
    const Tensor y = p.op({}, units(2));
    EXPECT_TRUE(p.resident(x) && p.resident(y));
    EXPECT_EQ(p.value(w).copying, has_c);
    EXPECT_TRUE(!has_c || p.value(c).evicted());
  }
}

// x! -> {a} [b] [c], in a budget of three: `lru-copy` spills a, although a replay would be cheaper.
TEST_F(EngineSpill, APolicyMayChooseHowAVictimIsRestored) {
  for (const bool copies : {true, false}) {
    Options chosen = options(3, 8, kExpensiveTier);
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

// x! -> {a} -> (b): x changes. b is computed from a, which no longer depends on x.
TEST_F(EngineSpill, ASpilledValueNeedsNoInputs) {
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

// A kernel may write operands that it does not declare. Without comparison, a value that a kernel
// has used must be written to the tier again.
TEST_F(EngineSpill, WithoutComparisonAUseInvalidatesTheCopy) {
  for (const bool compares : {true, false}) {
    Options with = options(8, 8, kExpensiveTier);
    with.spill_compares = compares;
    Program& p = start(with);
    const Tensor a = p.source(kUnit);
    p.evict(a);
    p.expect(a);  // reading it outside of kernels does not count
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

// a! -> {b} -> (c): b changes. c is computed from the copy of the old b.
TEST_F(EngineSpill, DependentsOfAnOldVersionUseItsCopy) {
  Options with = options(8, 8, kExpensiveTier);
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

TEST_F(EngineSpill, WithAFullTierValuesAreReplayedOrStay) {
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
  // A value that the tier refused is spilled when the tier has room again.
  p.drop(b);
  p.drop(c);
  p.drop(d);
  const Tensor f = p.source(kUnit);
  const Tensor g = p.op({a, f}, kUnit);
  (void)p.op({g}, kUnit);
  EXPECT_EQ(p.engine().context().tier.used(), kUnit);
  p.expect_all();
}

TEST_F(EngineSpill, AFailedWriteClosesTheTier) {
  Program& p = start(options(3, 8, kCheapTier));
  const Tensor a = p.source(kUnit);
  const Tensor b = p.op({a}, kUnit);
  const Tensor c = p.op({b}, kUnit);
  p.device().fail_spill(1);
  (void)p.op({c}, kUnit);  // b is evicted instead of a
  EXPECT_EQ(p.stats().spills, 0);
  EXPECT_FALSE(p.engine().context().tier.open());
  p.expect_all();
  EXPECT_EQ(p.stats().spills, 0);
  EXPECT_THROW((void)p.op({a, b, c}, kUnit), OutOfBudget);
  p.check();
}

TEST_F(EngineSpill, AFailedFetchCanBeRetried) {
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

TEST_F(EngineSpill, AFailedFetchIsReplacedByAReplay) {
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

// x! -> (a): the escape fetches x, which then stays resident.
TEST_F(EngineSpill, AnEscapedValueIsResident) {
  Program& p = start(options(3, 8, kExpensiveTier));
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

// A replay whose inputs are sources has room for one of them and for its result.
TEST_F(EngineSpill, TheSmallestBudgetIsThatOfTheLargestOp) {
  Program& p = start(options(3, 64, kExpensiveTier));
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

// At the end of a scope all live values must be resident at the same time.
TEST_F(EngineSpill, LiveValuesMustFitAtTheEnd) {
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

// A value that cannot be fetched at the end does not prevent other values from being restored.
TEST_F(EngineSpill, AFailedFetchAtTheEndAffectsOneValueOnly) {
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

// Without the rule, the source with the lowest price is spilled.
TEST_F(EngineSpill, ARuleKeepsAStorageOffTheTier) {
  Program& p = start(options(3, 4, kSlowTier));
  const Tensor a = p.source(kUnit);
  const Tensor b = p.source(kUnit);
  p.evict(a);
  EXPECT_FALSE(p.resident(a));
  p.set_rule(a, StorageRule::kOffTier);  // fetches it
  EXPECT_TRUE(p.resident(a));
  EXPECT_FALSE(p.value(a).slot.valid());
  p.evict(a);
  EXPECT_TRUE(p.resident(a));
  p.update(a);
  p.op({}, units(2));
  EXPECT_TRUE(p.resident(a));
  EXPECT_FALSE(p.resident(b));
  EXPECT_THROW(p.op({}, units(3)), OutOfBudget);
  p.expect_all();
}

// The tier is full with x, which only its copy holds. When the copy ends, x ends, and so does a!,
// which is about to take its slot.
TEST_F(EngineSpill, AVictimMayEndWhileItsSlotIsTaken) {
  Program& p = start(options(3, 2, kSlowTier));
  const Tensor a = p.source(kUnit);
  p.pin(a);
  p.evict(p.op({}, kUnit));  // early writes begin after an eviction
  Call make{.arguments = {{a}}, .fresh = {units(2)}};
  make.cost = Nanoseconds(std::chrono::seconds(1));
  const Tensor x = p.run(make).front();
  ASSERT_TRUE(p.value(x).copying);
  p.unpin(a);
  p.drop(a);
  p.drop(x);
  const Tensor last = p.op({}, kUnit);
  p.expect(last);
  p.check();
}

}  // namespace
}  // namespace recoup::detail
