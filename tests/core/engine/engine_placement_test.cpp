// Where blocks are placed: cheap results at one end of a free block, expensive results at the
// other. And what is evicted when the free memory is fragmented.
#include <gtest/gtest.h>

#include <chrono>

#include "csrc/engine/base/placement.h"
#include "tests/core/support/engine_contract.h"

namespace recoup::detail {
namespace {

constexpr Bytes kBudget = 64_KiB;
constexpr Nanoseconds kExpensive{1'000'000};
constexpr Nanoseconds kCheap{1000};

TEST(EnginePlacement, TheEndIsChosenByCostPerByte) {
  Placer placer(Placement::kTwoEnded, kBudget);
  const auto zone_of = [&](std::string_view op) {
    placer.begin(op);
    return placer.zone(1_KiB);
  };
  EXPECT_EQ(zone_of("conv"), Zone::kHigh);  // its cost is not known yet
  placer.learn("conv", kExpensive, 1_KiB);
  placer.learn("relu", kCheap, 1_KiB);
  EXPECT_EQ(zone_of("conv"), Zone::kLow);
  EXPECT_EQ(zone_of("relu"), Zone::kHigh);
  EXPECT_EQ(zone_of("pool"), Zone::kHigh);
  EXPECT_EQ(zone_of(""), Zone::kHigh);
  // An equal cost for a thousand times the bytes.
  placer.learn("linear", kExpensive, 1000_KiB);
  EXPECT_EQ(zone_of("linear"), Zone::kHigh);
  placer.begin("relu");
  EXPECT_EQ(placer.zone(Bytes(kBudget.count() / 512)), Zone::kLow);  // small
}

TEST(EnginePlacement, AReplayIsPlacedByItsCost) {
  Placer placer(Placement::kTwoEnded, kBudget);
  placer.learn("mean", Nanoseconds(10'000), 1_KiB);
  placer.begin_replay(kExpensive, 1_KiB);
  EXPECT_EQ(placer.zone(1_KiB), Zone::kLow);
  placer.begin_replay(kCheap, 1_KiB);
  EXPECT_EQ(placer.zone(1_KiB), Zone::kHigh);
}

TEST(EnginePlacement, BestFitIgnoresCosts) {
  Placer placer(Placement::kBestFit, kBudget);
  placer.learn("conv", kExpensive, 1_KiB);
  placer.learn("relu", kCheap, 1_KiB);
  placer.begin("conv");
  EXPECT_EQ(placer.zone(1_KiB), Zone::kHigh);
}

// |x!|c1|c2|c3|        free        |r3|r2|r1|
TEST(EnginePlacement, CheapResultsAreAdjacent) {
  Options options;
  options.budget = kBudget;
  options.small_result_bytes = 64_B;
  options.placement = Placement::kTwoEnded;
  Program p(options);
  const Tensor x = p.source(1_KiB);
  const auto make = [&](const char* name, Nanoseconds cost) {
    return p.run({.arguments = {{x}}, .fresh = {1_KiB}, .cost = cost, .name = name}).front();
  };
  make("conv", kExpensive);  // so that the costs are learned
  make("relu", kCheap);
  std::vector<Tensor> expensive;
  std::vector<Tensor> cheap;
  for (int i = 0; i < 3; ++i) {
    expensive.push_back(make("conv", kExpensive));
    cheap.push_back(make("relu", kCheap));
  }
  const auto at = [&](Tensor tensor) { return p.storage(tensor).offset->count(); };
  for (int i = 1; i < 3; ++i) {
    const auto now = static_cast<std::size_t>(i);
    EXPECT_EQ(at(expensive[now]), at(expensive[now - 1]) + 1024);
    EXPECT_EQ(at(cheap[now]), at(cheap[now - 1]) - 1024);
  }
  p.check();
}

class EngineRoom : public EngineContract {};

// |5 free|x!|free|c|: a kernel reads x, which stays in place, and needs six units. So evicting c
// does not help. The kernel is run again after x and c were moved to one side.
TEST_F(EngineRoom, NothingIsEvictedIfBlocksThatStayAreInTheWay) {
  Options options = options_of(8);
  options.placement = Placement::kBestFit;
  Program& p = start(options);
  const Tensor first = p.source(units(2));
  const Tensor x = p.source(kUnit);
  const Tensor c = p.op({x}, kUnit);
  const Tensor large = p.op({x}, units(5));  // evicts c: the budget is not enough for everything
  p.drop(large);
  p.drop(first);
  p.expect(c);
  ASSERT_EQ(p.engine().pool().offset(p.value(x).block), units(5));
  const std::int64_t evictions = p.stats().evictions;
  p.op({x}, units(6));
  EXPECT_EQ(p.stats().evictions, evictions);
  EXPECT_TRUE(p.resident(c));
}

// |free|x|w!|4 free|: w is being written, so it must not move, and five units are needed. The
// engine waits for the write, and then moves or spills w. The replay of x would be expensive and
// useless.
TEST_F(EngineRoom, ACopyThatDividesTheFreeMemoryIsWaitedFor) {
  Options options = tiered_options(units(9), units(16), kUnit);
  options.placement = Placement::kBestFit;
  Program& p = start(options);
  const Tensor first = p.source(units(4));
  const Tensor w = p.source(kUnit);
  p.evict(p.op({}, kUnit));  // values are written early after evictions
  Call make_x{.arguments = {{first}}, .fresh = {units(3)}};
  make_x.cost = Nanoseconds(std::chrono::seconds(1));
  const Tensor x = p.run(make_x).front();
  ASSERT_TRUE(p.value(w).copying);
  p.drop(first);
  ASSERT_EQ(p.engine().pool().offset(p.value(w).block), units(4));
  const Stats before = p.stats();
  p.op({}, units(5));
  EXPECT_FALSE(p.value(w).copying);
  EXPECT_TRUE(p.resident(x));
  EXPECT_EQ(p.stats().evictions, before.evictions);
  EXPECT_EQ(p.stats().spills, before.spills + 1);
}

// Of three values, each more expensive than the one before, the last one alone is large enough.
TEST_F(EngineRoom, VictimsThatALaterOneMakesUnnecessaryAreSpared) {
  for (const char* policy : {"recoup", "dtr"}) {
    Options options = options_of(8);
    options.policy = policy;
    Program& p = start(options);
    const Tensor source = p.source(kUnit);
    const auto make = [&](std::int64_t size, std::int64_t seconds) {
      Call call{.arguments = {{source}}, .fresh = {units(size)}};
      call.cost = Nanoseconds(std::chrono::seconds(seconds));
      return p.run(call).front();
    };
    const Tensor small = make(1, 1);
    const Tensor middle = make(2, 10);
    const Tensor large = make(4, 100);
    const bool spares = std::string_view(policy) == "recoup";
    p.op({source}, units(4));
    EXPECT_FALSE(p.resident(large)) << policy;
    EXPECT_EQ(p.resident(small), spares) << policy;
    EXPECT_EQ(p.resident(middle), spares) << policy;
    EXPECT_EQ(p.stats().evictions, spares ? 1 : 3) << policy;
    p.expect(small);
    p.expect(middle);
  }
}

// The third victim is needed with the second one, but not with the first.
TEST_F(EngineRoom, OnlyVictimsThatAreNotNeededAreSpared) {
  Options options = options_of(7);
  options.policy = "recoup";
  Program& p = start(options);
  const Tensor source = p.source(kUnit);
  std::vector<Tensor> made;
  for (const std::int64_t size : {1, 2, 3}) {
    Call call{.arguments = {{source}}, .fresh = {units(size)}};
    call.cost = Nanoseconds(std::chrono::seconds(size * size * size));
    made.push_back(p.run(call).front());
  }
  p.op({source}, units(5));
  EXPECT_TRUE(p.resident(made[0]));
  EXPECT_FALSE(p.resident(made[1]));
  EXPECT_FALSE(p.resident(made[2]));
}

// Small values between blocks that cannot move, and one large value next to free bytes.
class FragmentedPool {
 public:
  // Each small value costs five seconds and the large one eleven, so the large one is evicted last.
  FragmentedPool(Program& program, int small_values) {
    const Tensor source = program.source(kUnit);
    std::vector<Tensor> holes;
    const auto fixed = [&] { program.escape(program.source(kUnit)); };
    const auto make = [&](std::int64_t size, std::int64_t seconds) {
      fixed();
      Call call{.arguments = {{source}}, .fresh = {units(size)}};
      call.cost = Nanoseconds(std::chrono::seconds(seconds));
      return program.run(call).front();
    };
    for (int i = 0; i < small_values; ++i) {
      small.push_back(make(1, 5));
    }
    for (int i = 0; i < 2; ++i) {
      fixed();
      holes.push_back(program.source(kUnit));
    }
    large = make(2, 11);
    for (const Tensor hole : holes) {
      program.drop(hole);
    }
  }
  std::vector<Tensor> small;
  Tensor large;
};

// |2 free|large|w!|free|w!|free|w!|s|w!|s|w!...: four units are free, and four are needed in one
// piece. Only without the large value they are. Nothing is gained by evicting the others before.
TEST_F(EngineRoom, VictimsThatLeaveNoRangeAreSpared) {
  constexpr int kSmall = 9;
  for (const char* policy : {"recoup", "dtr"}) {
    Options options = options_of(2 * kSmall + 10);
    options.policy = policy;
    options.placement = Placement::kBestFit;
    Program& p = start(options);
    const FragmentedPool pool(p, kSmall);
    p.op({}, units(4));
    EXPECT_FALSE(p.resident(pool.large)) << policy;
    const bool spares = std::string_view(policy) == "recoup";
    for (const Tensor small : pool.small) {
      EXPECT_EQ(p.resident(small), spares) << policy;
    }
  }
}

// With fewer small values: later requests need the bytes that they leave.
TEST_F(EngineRoom, FewVictimsThatLeaveNoRangeAreEvicted) {
  Options options = options_of(2 * 2 + 10);
  options.policy = "recoup";
  options.placement = Placement::kBestFit;
  Program& p = start(options);
  const FragmentedPool pool(p, 2);
  p.op({}, units(4));
  EXPECT_FALSE(p.resident(pool.large));
  EXPECT_FALSE(p.resident(pool.small[0]));
  EXPECT_FALSE(p.resident(pool.small[1]));
}

}  // namespace
}  // namespace recoup::detail
