// Each policy picks the victim of its formula: compared with a simple oracle, and in examples by
// hand.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "tests/core/policy/policy_fake_view.h"

namespace recoup {
namespace {

// ---- oracles: the formulas of the papers, in long double, over all candidates ----

using Oracle = long double (*)(const Row& row, long double staleness);

long double size(const Row& row) { return static_cast<long double>(row.candidate.size.count()); }
long double own(const Row& row) { return static_cast<long double>(row.candidate.own_cost.count()); }
long double ns(Nanoseconds time) { return static_cast<long double>(time.count()); }

long double recoup_score(const Row& r, long double s) {
  // In double, because no root is exact: equal scores of the policy must be equal here.
  const auto root = static_cast<double>(size(r)) * std::sqrt(static_cast<double>(s));
  return static_cast<double>(own(r) + ns(r.ancestors)) / root;
}

// In double, where 2^62 and 2^62 + 1 are equal.
long double rounded(long double number) { return static_cast<double>(number); }

long double capuchin_score(const Row& r, long double) {
  const long double cost = rounded(rounded(own(r)) + rounded(ns(r.ancestors)));
  const long double left = ns(r.candidate.until_use) - ns(r.candidate.copy_cost);
  if (r.candidate.until_use == Candidate::kNever) {
    return -rounded(ns(Candidate::kNever));
  }
  if (r.candidate.copy_cost == Candidate::kNever) {
    return rounded(cost / size(r));
  }
  return left >= 0 ? -rounded(left) : rounded(std::min(rounded(-left), cost) / size(r));
}

const std::map<std::string_view, Oracle>& oracles() {
  static const std::map<std::string_view, Oracle> kOracles = {
      {"dtr", [](const Row& r, long double s) { return (own(r) + ns(r.exact)) / (size(r) * s); }},
      {"dtr-eq",
       [](const Row& r, long double s) { return (own(r) + ns(r.equivalence)) / (size(r) * s); }},
      {"dtr-local", [](const Row& r, long double s) { return own(r) / (size(r) * s); }},
      {"lru", [](const Row&, long double s) { return 1 / s; }},
      {"lru-copy", [](const Row&, long double s) { return 1 / s; }},
      {"tflms", [](const Row& r, long double) { return -rounded(ns(r.candidate.until_use)); }},
      {"capuchin", capuchin_score},
      {"unbounded", [](const Row& r, long double) { return 1 / size(r); }},
      {"recoup", recoup_score},
      {"planned", recoup_score},
      {"largest", [](const Row& r, long double) { return 1 / size(r); }},
      {"msps", [](const Row& r, long double) { return (own(r) + ns(r.ancestors)) / size(r); }},
      {"dte",
       [](const Row& r, long double s) {
         const Candidate& c = r.candidate;
         // In double, where 2^62 and 2^62 + 1 are equal.
         const auto cost = static_cast<double>(own(r) + ns(r.equivalence) + 1);
         return std::pow(1.0001L, c.recomputes) *
                (cost / ((size(r) + static_cast<long double>(c.free_around.count())) * s));
       }},
      {"oracle",
       [](const Row& r, long double) {
         const long double ahead = std::max<long double>(ns(r.candidate.until_use), 1);
         return r.candidate.until_use == Candidate::kNever
                    ? 0
                    : std::max<long double>(own(r) + ns(r.ancestors), 1) / (size(r) * ahead);
       }},
  };
  return kOracles;
}

// Policies that do not choose the lowest score; they have tests of their own.
const std::set<std::string_view> kNoOracle = {"random", "coop", "coop-move"};

// The lowest score; of equal ones the largest value, then the lowest id.
ValueId expected_victim(const FakeView& view, Oracle oracle) {
  const Row* best = nullptr;
  long double best_score = 0;
  for (const Row& row : view.rows()) {
    const Candidate& c = row.candidate;
    const Tick age = view.now() - c.last_access;
    const long double score = oracle(row, static_cast<long double>(age == 0 ? 1 : age));
    if (best == nullptr || score < best_score ||
        (score == best_score && (c.size > best->candidate.size ||
                                 (c.size == best->candidate.size && c.id < best->candidate.id)))) {
      best = &row;
      best_score = score;
    }
  }
  return best->candidate.id;
}

std::unique_ptr<EvictionPolicy> exact(std::string_view name) {
  return find_policy(name).make({.small_filter = false, .sampling = false});
}

TEST(PolicyScores, EveryPolicyHasAnOracleOrIsListed) {
  for (const PolicyInfo& info : policies()) {
    const bool without = kNoOracle.contains(info.name) || info.schedule != ScheduleKind::kNone;
    EXPECT_NE(oracles().contains(info.name), without) << info.name;
  }
}

TEST(PolicyScores, AgreeWithBruteForce) {
  constexpr int kInstances = 10'000;
  for (const auto& [name, oracle] : oracles()) {
    const auto policy = exact(name);
    Rng rng(1);
    for (int instance = 0; instance < kInstances; ++instance) {
      const RowKind kind = row_kinds()[static_cast<std::size_t>(draw(rng, 0, 2))];
      const FakeView view = random_view(rng, static_cast<std::size_t>(draw(rng, 1, 24)), kind);
      ASSERT_EQ(policy->plan(view, kRequest).victims, std::vector{expected_victim(view, oracle)})
          << name << ", instance " << instance;
    }
  }
}

// ---- examples by hand ----

constexpr Tick kNow = 100;

// m, c0 and s as in the papers, then the costs of e*, e~* and the ancestors.
Row row(std::uint32_t id, std::int64_t m, std::int64_t c0, Tick s, std::int64_t exact_cost = 0,
        std::int64_t equivalence = 0, std::int64_t ancestors = 0) {
  return {.candidate = {.id = ValueId(id),
                        .size = Bytes(m),
                        .offset = Bytes(0),
                        .own_cost = Nanoseconds(c0),
                        .last_access = kNow - s,
                        .equivalence_at_least = {}},
          .exact = Nanoseconds(exact_cost),
          .equivalence = Nanoseconds(equivalence),
          .ancestors = Nanoseconds(ancestors)};
}

std::uint32_t victim(std::string_view name, const std::vector<Row>& rows) {
  return exact(name)->plan(FakeView(rows, kNow), kRequest).victims.at(0).index();
}

TEST(PolicyScores, PoliciesPickDifferentVictimsOfTheSameValues) {
  const std::vector<Row> rows = {
      // id   m  c0   s  e*  e~*  ancestors
      row(1, 10, 40, 20, 60, 60, 60),   // h 100/200, eq 100/200, local 40/200,  msps 100/10
      row(2, 40, 90, 10, 150, 300, 0),  // h 240/400, eq 390/400, local 90/400,  msps 90/40
      row(3, 20, 60, 10, 20, 60, 20),   // h 80/200,  eq 120/200, local 60/200,  msps 80/20
      row(4, 5, 50, 50, 150, 100, 0),   // h 200/250, eq 150/250, local 50/250,  msps 50/5
      row(5, 64, 800, 1, 0, 0, 0),      // h 800/64,  eq 800/64,  local 800/64,  msps 800/64
  };
  EXPECT_EQ(victim("dtr", rows), 3U);        // 0.4 < 0.5 < 0.6 < 0.8 < 12.5
  EXPECT_EQ(victim("dtr-eq", rows), 1U);     // 0.5 < 0.6 = 0.6 < 0.975 < 12.5
  EXPECT_EQ(victim("dtr-local", rows), 1U);  // 0.2 = 0.2 < 0.225 < 0.3: the larger of 1 and 4
  EXPECT_EQ(victim("lru", rows), 4U);        // 50 ticks ago
  EXPECT_EQ(victim("largest", rows), 5U);    // 64 bytes
  EXPECT_EQ(victim("msps", rows), 2U);       // 2.25 < 4 < 10 = 10 < 12.5
}

TEST(PolicyScores, TiesAreBrokenBySizeThenById) {
  for (const auto& [name, oracle] : oracles()) {
    EXPECT_EQ(victim(name, {row(9, 8, 4, 2), row(3, 8, 4, 2), row(5, 8, 4, 2)}), 3U) << name;
  }
  // A cost of 0 scores 0 at any size: the largest value is evicted.
  EXPECT_EQ(victim("dtr", {row(1, 8, 0, 2), row(2, 16, 0, 1), row(3, 12, 0, 9)}), 2U);
  // Two outputs of one op, used at the same time.
  EXPECT_EQ(victim("lru", {row(1, 8, 4, 2), row(2, 16, 4, 2)}), 2U);
}

TEST(PolicyScores, SomePoliciesChooseHowAVictimIsRestored) {
  const auto by = [](std::string_view name, Nanoseconds until_use, Nanoseconds copy_cost) {
    Row only = row(1, 8, 10, 1, 0, 0, 5);
    only.candidate.until_use = until_use;
    only.candidate.copy_cost = copy_cost;
    return exact(name)->plan(FakeView({only}, kNow), kRequest).by;
  };
  const Nanoseconds soon{2};
  for (std::string_view name : {"dtr", "lru", "msps", "oracle", "recoup", "coop"}) {
    EXPECT_EQ(by(name, soon, Nanoseconds(1)), GetBack::kCheapest) << name;
  }
  for (std::string_view name : {"lru-copy", "tflms"}) {
    EXPECT_EQ(by(name, soon, Nanoseconds(1000)), GetBack::kCopy) << name;
  }
  EXPECT_EQ(by("tflms", Candidate::kNever, Nanoseconds(1)), GetBack::kReplay);
  EXPECT_EQ(by("capuchin", soon, Nanoseconds(2)), GetBack::kCopy);   // the copy is hidden
  EXPECT_EQ(by("capuchin", soon, Nanoseconds(17)), GetBack::kCopy);  // adds 15, as much as a replay
  EXPECT_EQ(by("capuchin", soon, Nanoseconds(18)), GetBack::kReplay);
  EXPECT_EQ(by("capuchin", soon, Candidate::kNever), GetBack::kReplay);
  EXPECT_EQ(by("capuchin", Candidate::kNever, Nanoseconds(1)), GetBack::kReplay);
}

TEST(PolicyScores, CapuchinPrefersHiddenCopiesThenTheLeastOverhead) {
  const auto other = [](std::uint32_t id, std::int64_t until_use, std::int64_t copy_cost) {
    Row made = row(id, 8, 10, 1, 0, 0, 5);
    made.candidate.until_use = Nanoseconds(until_use);
    made.candidate.copy_cost = Nanoseconds(copy_cost);
    return made;
  };
  EXPECT_EQ(victim("capuchin", {other(1, 50, 20), other(2, 90, 50), other(3, 4, 5)}), 2U);
  // adds 8
  EXPECT_EQ(victim("capuchin", {other(1, 50, 80), other(2, 4, 12), other(3, 4, 90)}), 2U);
}

TEST(PolicyScores, DteCountsFreeNeighborsAndReplays) {
  Row next_to_free = row(1, 8, 15, 1);  // 16 / 16
  next_to_free.candidate.free_around = Bytes(8);
  EXPECT_EQ(victim("dte", {next_to_free, row(2, 8, 9, 1)}), 1U);  // 10 / 8
  EXPECT_EQ(victim("dte", {next_to_free, row(2, 8, 6, 1)}), 2U);  // 7 / 8
  Row often = row(1, 8, 9, 1);
  often.candidate.recomputes = 7000;                        // 1.0001^7000 = 2.0136
  EXPECT_EQ(victim("dte", {often, row(2, 8, 18, 1)}), 2U);  // 20.1 / 8 against 19 / 8
  EXPECT_EQ(victim("dte", {often, row(2, 8, 20, 1)}), 1U);  // against 21 / 8
  // A cost of 0 has a score, too: the older and larger value is evicted first.
  EXPECT_EQ(victim("dte", {row(1, 8, 0, 1), row(2, 8, 0, 2)}), 2U);
}

TEST(PolicyScores, ZeroStalenessIsNotDividedBy) {
  // s = 0 counts as 1: 10/8 against 11/8, then against 5/(2*8).
  EXPECT_EQ(victim("dtr", {row(1, 8, 10, 0), row(2, 8, 11, 1)}), 1U);
  EXPECT_EQ(victim("dtr", {row(1, 8, 10, 0), row(2, 8, 5, 2)}), 2U);
  // A cost of 0 with s = 0 scores 0, not 0 / 0.
  EXPECT_EQ(victim("dtr", {row(1, 8, 1, 90), row(2, 8, 0, 0)}), 2U);
  EXPECT_EQ(victim("lru", {row(1, 8, 1, 0), row(2, 8, 1, 2)}), 2U);
}

// DTR's prototype multiplies bytes and staleness in 64 bits. For 1 GB that was idle for
// 18.446744074 s the product is just over 2^64 and wraps around to 290,448,384, as if the idle time
// were 0.3 ns. So after every pause of the program the best victim would stay.
TEST(PolicyScores, OneGigabyteIdleForEighteenSecondsDoesNotOverflow) {
  constexpr std::int64_t kGigabyte = 1'000'000'000;
  constexpr Tick kIdle = 18'446'744'074;
  constexpr Tick kLater = 20'000'000'000;
  const auto make_row = [](std::uint32_t id, std::int64_t m, Tick s) {
    Row made = row(id, m, 1'000'000, 0);
    made.candidate.last_access = kLater - s;
    return made;
  };
  // As expensive, 1 MB, idle for a second: it scores 1e-9, the gigabyte 5.4e-14.
  const FakeView view({make_row(1, kGigabyte, kIdle), make_row(2, 1'000'000, 1'000'000'000)},
                      kLater);

  const auto wrapped = static_cast<std::uint64_t>(kGigabyte) * static_cast<std::uint64_t>(kIdle);
  ASSERT_EQ(wrapped, 290'448'384U);
  ASSERT_LT(wrapped, std::uint64_t{1'000'000} * 1'000'000'000U)
      << "with the overflow, value 2 would be evicted";

  for (std::string_view name : {"dtr", "dtr-eq", "dtr-local"}) {
    EXPECT_EQ(exact(name)->plan(view, kRequest).victims, std::vector{ValueId(1)}) << name;
  }
}

TEST(PolicyScores, QueryOnlyNeighborhoodsThatCanMatter) {
  // Own scores are 1, 2, 3, ...; with its neighborhood the first has 2.5. The second, 2 + 8, could
  // beat that by its own score alone, so its neighborhood is queried. The third could not.
  std::vector<Row> rows;
  for (std::uint32_t id = 1; id <= 50; ++id) {
    rows.push_back(row(id, 1, 10 * id, 10, id == 1 ? 15 : 80, id == 1 ? 15 : 80));
  }
  for (std::string_view name : {"dtr", "dtr-eq"}) {
    const FakeView view(rows, kNow);
    const auto policy = exact(name);
    EXPECT_EQ(policy->plan(view, kRequest).victims, std::vector{ValueId(1)});
    EXPECT_EQ(view.queries(), 2);
    EXPECT_EQ(policy->work().scored, 2);
    EXPECT_EQ(policy->work().visited, 50);
  }
}

TEST(PolicyScores, SkipNeighborhoodsWithAHighLowerBound) {
  // Own scores are 1, 2, 3, ...; with their neighborhoods all except the last have 100 or more.
  std::vector<Row> rows;
  for (std::uint32_t id = 1; id <= 50; ++id) {
    const std::int64_t around = id == 50 ? 0 : 1000;
    rows.push_back(row(id, 1, 10 * id, 10, around, around));
    rows.back().candidate.equivalence_at_least = Nanoseconds(id == 50 ? 0 : 900);
  }
  const FakeView view(rows, kNow);
  EXPECT_EQ(exact("dtr-eq")->plan(view, kRequest).victims, std::vector{ValueId(50)});
  EXPECT_EQ(view.queries(), 1);
  // This bound does not apply to other neighborhoods.
  EXPECT_EQ(exact("dtr")->plan(view, kRequest).victims, std::vector{ValueId(50)});
  EXPECT_EQ(view.queries(), 1 + 50);
}

TEST(PolicyScores, RandomTakesAllEquallyOften) {
  std::vector<Row> rows;
  for (std::uint32_t id = 0; id < 8; ++id) {
    rows.push_back(row(id, 1 << id, 1 << id, 1 << (id % 4)));
  }
  const FakeView view(rows, kNow);
  for (bool sampling : {false, true}) {
    const auto policy = find_policy("random").make({.small_filter = false, .sampling = sampling});
    std::map<std::uint32_t, int> taken;
    for (int round = 0; round < 8000; ++round) {
      ++taken[policy->plan(view, kRequest).victims.at(0).index()];
    }
    for (const auto& [id, times] : taken) {
      EXPECT_NEAR(times, 1000, 150) << "5 standard deviations, value " << id;
    }
    EXPECT_EQ(taken.size(), 8U);
  }
}

TEST(PolicyScores, OraclePutsPrioritiesBeforeScores) {
  // The first is the cheapest and has the latest use; the second is neither.
  std::vector<Row> rows = {row(0, 100, 1, 50), row(1, 100, 1000, 50), row(2, 100, 10, 50)};
  for (Row& each : rows) {
    each.candidate.until_use = Nanoseconds(each.candidate.id == ValueId(0) ? 1000 : 10);
  }
  const auto victim = [&rows] {
    return exact("oracle")->plan(FakeView(rows, kNow), kRequest).victims.at(0);
  };
  EXPECT_EQ(victim(), ValueId(0));
  rows[1].candidate.priority = -1;
  EXPECT_EQ(victim(), ValueId(1));
  rows[1].candidate.priority = 1;
  rows[0].candidate.priority = 1;
  EXPECT_EQ(victim(), ValueId(2));
}

TEST(PolicyScores, ABlindOracleWithAgeIsTheDefaultPolicy) {
  Rng rng(7);
  PolicyOptions options{.small_filter = false, .sampling = false};
  options.oracle = {.distance = 0, .age = 0.5, .ahead = false};
  const auto blind = find_policy("oracle").make(options);
  EXPECT_FALSE(blind->needs().future);
  for (int instance = 0; instance < 2000; ++instance) {
    // Costs above 0, because a blind oracle treats 0 as 1.
    std::vector<Row> rows;
    for (std::uint32_t id = 0; id < 12; ++id) {
      rows.push_back(row(id, 64 * (1 + static_cast<std::int64_t>(rng() % 500)),
                         1 + static_cast<std::int64_t>(rng() % 1000),
                         1 + static_cast<Tick>(rng() % 90), 0, 0,
                         static_cast<std::int64_t>(rng() % 1000)));
    }
    const FakeView view(rows, kNow);
    ASSERT_EQ(blind->plan(view, kRequest).victims, exact("recoup")->plan(view, kRequest).victims);
  }
}

TEST(PolicyScores, DefaultsAreThoseOfThePapers) {
  for (std::string_view name : {"dtr", "dtr-eq", "dtr-local"}) {
    EXPECT_TRUE(find_policy(name).defaults.small_filter) << name;
    EXPECT_TRUE(find_policy(name).defaults.sampling) << name;
  }
  for (std::string_view name : {"lru", "largest", "msps", "random"}) {
    EXPECT_FALSE(find_policy(name).defaults.small_filter) << name;
    EXPECT_FALSE(find_policy(name).defaults.sampling) << name;
  }
}

}  // namespace
}  // namespace recoup
