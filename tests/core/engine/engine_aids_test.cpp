// The test aids: each has its documented effect, and random programs run correctly under all of
// them.
#include <gtest/gtest.h>

#include <stdexcept>

#include "tests/core/support/fuzzer.h"
#include "tests/core/support/seeds.h"

namespace recoup::detail {
namespace {

constexpr std::uint64_t kProgramsAnAid = seeds(60);

Options options(Bytes budget, const TestAids& aids) {
  Options options = plain_options(budget);
  options.aids = aids;
  return options;
}

TEST(TestAids, AreParsed) {
  const TestAids all = parse_test_aids(
      "poison,shake,in-place,page,delay=50,fail-allocation=17,fail-replay=3,fail-spill=2,"
      "fail-fetch=4,fail-page=6,force-eviction=5,persistent");
  EXPECT_TRUE(all.poison && all.shake && all.in_place && all.page && all.persistent && all.any());
  EXPECT_EQ(all.fail_allocation, 17);
  EXPECT_EQ(all.fail_replay, 3);
  EXPECT_EQ(all.fail_spill, 2);
  EXPECT_EQ(all.fail_fetch, 4);
  EXPECT_EQ(all.fail_page, 6);
  EXPECT_EQ(all.force_eviction, 5);
  EXPECT_EQ(all.delay, 50);
  EXPECT_FALSE(TestAids().any());
  for (const char* const wrong :
       {"", "poison,", "shakes", "poison=1", "fail-replay", "fail-replay=", "fail-replay=0",
        "fail-replay=-1", "fail-replay=3x", "fail-replay=99999999999999999999", "persistent",
        " shake"}) {
    EXPECT_THROW(parse_test_aids(wrong), std::invalid_argument) << wrong;
  }
}

TEST(EngineAids, PoisonOverwritesFreedBytes) {
  Program p(options(4_KiB, {.poison = true}));
  const Tensor x = p.source(1_KiB);
  const Tensor y = p.op({x}, 1_KiB);
  const auto holds = [&](PoolOffset at, Bytes size, std::uint8_t byte) {
    const Span bytes = p.device().at({.external = nullptr, .offset = at}, size);
    return std::all_of(bytes.begin(), bytes.end(), [byte](std::uint8_t b) { return b == byte; });
  };
  const PoolOffset before = p.storage(y).offset.value();
  ASSERT_TRUE(p.evict(y));
  EXPECT_TRUE(holds(before, 1_KiB, NumericDevice::kGivenUp)) << "evicted";
  const PoolOffset freed = p.storage(x).offset.value();
  p.expect(y);
  p.drop(y);
  p.drop(x);
  EXPECT_TRUE(holds(freed, 1_KiB, NumericDevice::kGivenUp)) << "freed";
}

TEST(EngineAids, PoisonSparesTheTargetOfAMove) {
  Options best_fit = options(384_B, {.poison = true});
  best_fit.placement = Placement::kBestFit;
  Program p(best_fit);
  const Tensor x = p.source(256_B);
  const PoolOffset before = p.storage(x).offset.value();
  (void)p.engine().defragment({}, Bytes(0));
  const PoolOffset after = p.storage(x).offset.value();
  ASSERT_NE(before, after);
  ASSERT_LT(std::max(before, after) - std::min(before, after), 256_B) << "they must overlap";
  p.expect(x);
  const PoolOffset old = after < before ? after + 256_B : before;
  EXPECT_EQ(p.device().at({.external = nullptr, .offset = old}, 64_B).front(),
            NumericDevice::kGivenUp);
}

TEST(EngineAids, ShakeMovesAndEvictsAtEachAllocation) {
  Program p(options(4_KiB, {.shake = true}));
  const Tensor x = p.source(1_KiB);
  const Tensor y = p.op({}, 512_B);
  for (int i = 0; i < 3; ++i) {
    const PoolOffset before = p.storage(x).offset.value();
    p.drop(p.source(256_B));
    EXPECT_NE(p.storage(x).offset.value(), before);
    EXPECT_FALSE(p.resident(y));
    p.expect(x);
    p.expect(y);
    p.check();
  }
}

TEST(EngineAids, AnAllocationFailsOnceOrPersistently) {
  for (const bool persistent : {false, true}) {
    Program p(options(1_MiB, {.fail_allocation = 2, .persistent = persistent}));
    p.source(1_KiB);
    try {
      p.source(1_KiB);
      FAIL() << "no error was thrown";
    } catch (const OutOfBudget& error) {
      EXPECT_NE(error.report().reason.find("a test aid made allocation 2 fail"), std::string::npos);
      EXPECT_FALSE(error.report().fragmented);
    }
    p.check();
    if (persistent) {
      EXPECT_THROW(p.source(1_KiB), OutOfBudget);
    } else {
      p.source(1_KiB);
    }
    p.check();
  }
}

TEST(EngineAids, AReplayFailsOnceOrPersistently) {
  for (const bool persistent : {false, true}) {
    Program p(options(1_MiB, {.fail_replay = 1, .persistent = persistent}));
    const Tensor x = p.source(1_KiB);
    const Tensor y = p.op({x}, 1_KiB);
    ASSERT_TRUE(p.evict(y));
    EXPECT_THROW(p.expect(y), InjectedFault);
    p.check();
    if (persistent) {
      EXPECT_THROW(p.expect(y), InjectedFault);
      p.engine().set_test_aids({});
    }
    p.expect(y);
    p.check();
  }
}

TEST(EngineAids, AnEvictionIsForcedOnceOrPersistently) {
  for (const bool persistent : {false, true}) {
    Program p(options(1_MiB, {.force_eviction = 3, .persistent = persistent}));
    const Tensor x = p.source(1_KiB);
    const Tensor y = p.op({x}, 1_KiB);
    p.source(1_KiB);
    EXPECT_FALSE(p.resident(y));
    p.expect(y);
    p.source(1_KiB);
    EXPECT_EQ(p.resident(y), !persistent);
    p.expect(y);
    p.check();
  }
}

// ---- random programs ----

// Returns the statistics of the program and the number of faults that it met.
std::pair<Stats, std::int64_t> run(std::uint64_t seed, const TestAids& aids) {
  const auto& table = policies();
  std::vector<std::string_view> names;
  for (const PolicyInfo& info : table) {
    if (!info.simulated_only && info.schedule == ScheduleKind::kNone) {
      names.push_back(info.name);
    }
  }
  Fuzzer fuzzer(names[seed % names.size()], seed, {}, aids);
  fuzzer.run();
  return {fuzzer.stats(), fuzzer.faults()};
}

struct RandomAid {
  const char* name;
  TestAids aids;
};

class EngineAidsRandom : public testing::TestWithParam<RandomAid> {};

TEST_P(EngineAidsRandom, AgreesWithAPlainInterpreter) {
  for (std::uint64_t seed = 0; seed < programs(kProgramsAnAid * 5) && !HasFailure(); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    ASSERT_NO_THROW(run(seed, GetParam().aids));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Aids, EngineAidsRandom,
    testing::Values(RandomAid{"poison", {.poison = true}}, RandomAid{"shake", {.shake = true}},
                    RandomAid{"both", {.poison = true, .shake = true}},
                    RandomAid{"in_place", {.in_place = true}},
                    RandomAid{"all", {.poison = true, .shake = true, .in_place = true}}),
    [](const auto& param) { return param.param.name; });

// The counts at which a fault is injected: all up to 4, then each a quarter larger than the last.
template <class Try>
void for_each_count(std::int64_t last, Try&& attempt) {
  for (std::int64_t k = 1; k <= last && !testing::Test::HasFailure(); k += 1 + k / 4) {
    SCOPED_TRACE(testing::Message() << "k = " << k);
    attempt(k);
  }
}

struct RandomFault {
  const char* name;
  std::int64_t TestAids::* count;
  std::int64_t Stats::* of;
  bool persistent;
};

class EngineFaultsRandom : public testing::TestWithParam<RandomFault> {};

TEST_P(EngineFaultsRandom, NothingIsLostAndARetrySucceeds) {
  std::int64_t faults = 0;
  for (std::uint64_t seed = 0; seed < programs(kProgramsAnAid) && !HasFailure(); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const Stats plain = run(seed, {}).first;
    for_each_count(plain.*GetParam().of, [&](std::int64_t k) {
      TestAids aids{.poison = true};
      aids.*GetParam().count = k;
      aids.persistent = GetParam().persistent;
      ASSERT_NO_THROW(faults += run(seed, aids).second);
    });
  }
  const bool harmless =
      GetParam().count == &TestAids::force_eviction || GetParam().count == &TestAids::fail_spill;
  EXPECT_TRUE(harmless || faults > seeds(50, 10)) << faults;
}

INSTANTIATE_TEST_SUITE_P(
    Faults, EngineFaultsRandom,
    testing::Values(
        RandomFault{"allocation", &TestAids::fail_allocation, &Stats::allocations, false},
        RandomFault{"allocations", &TestAids::fail_allocation, &Stats::allocations, true},
        RandomFault{"replay", &TestAids::fail_replay, &Stats::replays, false},
        RandomFault{"replays", &TestAids::fail_replay, &Stats::replays, true},
        RandomFault{"spill", &TestAids::fail_spill, &Stats::spills, false},
        RandomFault{"fetch", &TestAids::fail_fetch, &Stats::fetches, false},
        RandomFault{"fetches", &TestAids::fail_fetch, &Stats::fetches, true},
        RandomFault{"eviction", &TestAids::force_eviction, &Stats::allocations, false},
        RandomFault{"evictions", &TestAids::force_eviction, &Stats::allocations, true}),
    [](const auto& param) { return param.param.name; });

}  // namespace
}  // namespace recoup::detail
