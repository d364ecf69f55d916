// The guarantees of every policy in the registry, under every setting of its options. A new policy
// is tested here without further work.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <tuple>

#include "csrc/policy/score_policy.h"
#include "recoup/errors.h"
#include "tests/core/policy/policy_fake_view.h"

namespace recoup {
namespace {

using Setting = std::tuple<const PolicyInfo*, bool, bool>;  // policy, small filter, sampling

class PolicyContract : public testing::TestWithParam<Setting> {
 protected:
  [[nodiscard]] static std::unique_ptr<EvictionPolicy> make(std::uint64_t seed = 1) {
    const auto [info, small_filter, sampling] = GetParam();
    return info->make({.small_filter = small_filter, .sampling = sampling, .seed = seed});
  }
};

// Policies that search by score; others need not sample or filter.
class ScorePolicyContract : public PolicyContract {};

// Evicts until no candidate is left, as an engine does that needs more and more room.
std::vector<ValueId> drain(EvictionPolicy& policy, FakeView view) {
  if (!policy.needs().equivalence) {
    view.forbid_equivalence();
  }
  std::vector<ValueId> order;
  while (view.candidate_count() > 0) {
    const Victims plan = policy.plan(view, kRequest);
    EXPECT_FALSE(plan.victims.empty());
    if (plan.victims.empty()) {
      break;
    }
    for (ValueId victim : plan.victims) {
      EXPECT_TRUE(view.contains(victim));
      view.evict(victim);
      order.push_back(victim);
    }
  }
  return order;
}

bool operator==(const SearchWork& a, const SearchWork& b) {
  return std::tie(a.plans, a.visited, a.scored, a.filtered) ==
         std::tie(b.plans, b.visited, b.scored, b.filtered);
}

TEST_P(PolicyContract, HasTheNameOfItsRow) {
  EXPECT_EQ(make()->name(), std::get<0>(GetParam())->name);
}

TEST_P(PolicyContract, EvictsEveryCandidateOnce) {
  Rng rng(2);
  for (RowKind kind : row_kinds()) {
    for (int round = 0; round < 20; ++round) {
      const auto count = static_cast<std::size_t>(draw(rng, 1, 40));
      const std::vector<ValueId> order = drain(*make(), random_view(rng, count, kind));
      EXPECT_EQ(std::set(order.begin(), order.end()).size(), count);
    }
  }
}

TEST_P(PolicyContract, DoesTheSameWithTheSameSeed) {
  Rng rng(3);
  for (RowKind kind : row_kinds()) {
    const FakeView view = random_view(rng, 60, kind);
    const auto one = make(17);
    const auto other = make(17);
    EXPECT_EQ(drain(*one, view), drain(*other, view));
    EXPECT_TRUE(one->work() == other->work());
  }
}

TEST_P(PolicyContract, PlansNothingWithoutCandidates) {
  const auto policy = make();
  EXPECT_TRUE(policy->plan(FakeView({}, 0), kRequest).victims.empty());
  EXPECT_EQ(policy->work().plans, 1);
  EXPECT_EQ(policy->work().visited, 0);
}

TEST_P(PolicyContract, TakesTheOnlyCandidate) {
  constexpr std::int64_t kHuge = std::int64_t{1} << 62;
  for (std::int64_t size : {std::int64_t{1}, kHuge}) {
    for (std::int64_t cost : {std::int64_t{0}, kHuge}) {
      for (Tick staleness : {Tick{0}, Tick{kHuge}}) {
        const Nanoseconds time(cost);
        const FakeView view({{.candidate = {.id = ValueId(7),
                                            .size = Bytes(size),
                                            .offset = Bytes(0),
                                            .own_cost = time,
                                            .last_access = kHuge - staleness},
                              .exact = time,
                              .equivalence = time,
                              .ancestors = time}},
                            kHuge);
        EXPECT_EQ(make()->plan(view, kRequest).victims, std::vector{ValueId(7)});
      }
    }
  }
}

TEST_P(PolicyContract, EvictsEqualRowsOneByOne) {
  std::vector<Row> rows(30);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i].candidate = {.id = ValueId(static_cast<std::uint32_t>(i)),
                         .size = Bytes(64),
                         .offset = Bytes(static_cast<std::int64_t>(64 * i))};
  }
  EXPECT_EQ(drain(*make(), FakeView(rows, 0)).size(), rows.size());
}

TEST_P(PolicyContract, CountsItsWork) {
  const auto [info, small_filter, sampling] = GetParam();
  const auto policy = make();
  Rng rng(4);
  SearchWork before;
  for (int round = 0; round < 100; ++round) {
    const FakeView view = random_view(rng, 200, RowKind::kRealistic);
    static_cast<void>(policy->plan(view, kRequest));
    const SearchWork& work = policy->work();
    EXPECT_EQ(work.plans, before.plans + 1);
    EXPECT_EQ(work.visited - before.visited,
              std::accumulate(view.visits().begin(), view.visits().end(), 0));
    EXPECT_GT(work.visited, before.visited);
    EXPECT_GE(work.scored, before.scored);
    EXPECT_GE(work.filtered, before.filtered);
    EXPECT_LE(work.scored + work.filtered, work.visited);
    before = work;
  }
  if (!small_filter) {
    EXPECT_EQ(policy->work().filtered, 0);
  }
}

TEST_P(ScorePolicyContract, ScoresWhatItDoesNotFilterOut) {
  const auto policy = make();
  Rng rng(5);
  for (int round = 0; round < 50; ++round) {
    const FakeView view = random_view(rng, 100, RowKind::kRealistic);
    const SearchWork before = policy->work();
    static_cast<void>(policy->plan(view, kRequest));
    const SearchWork& work = policy->work();
    const std::int64_t shortlist =
        (work.visited - before.visited) - (work.filtered - before.filtered);
    const std::int64_t scored = work.scored - before.scored;
    EXPECT_GE(scored, 1);
    if (view.queries() == 0) {
      EXPECT_EQ(scored, shortlist);
    } else {  // the cost of a neighborhood is queried only where it can matter
      EXPECT_EQ(scored, view.queries());
      EXPECT_LE(scored, shortlist);
    }
  }
}

TEST_P(ScorePolicyContract, VisitsAllOrTwiceTheRoot) {
  const bool sampling = std::get<2>(GetParam());
  const auto policy = make();
  for (std::size_t count : {1U, 3U, 100U, 2500U}) {
    // All of one size, so that none is filtered.
    std::vector<Row> rows(count);
    for (std::size_t i = 0; i < count; ++i) {
      rows[i].candidate = {
          .id = ValueId(static_cast<std::uint32_t>(i)), .size = Bytes(64), .offset = Bytes(0)};
    }
    const FakeView view(rows, 0);
    constexpr int kPlans = 400;
    const std::int64_t before = policy->work().visited;
    for (int plan = 0; plan < kPlans; ++plan) {
      static_cast<void>(policy->plan(view, kRequest));
    }
    const double mean = static_cast<double>(policy->work().visited - before) / kPlans;
    const auto all = static_cast<double>(count);
    if (!sampling || count <= 3) {
      EXPECT_EQ(mean, all);
      continue;
    }
    EXPECT_NEAR(mean, 2 * std::sqrt(all), 0.1 * 2 * std::sqrt(all));
    // Every candidate is visited equally often: 400 * 2 / sqrt(N) times, which is at least 16 here.
    const double expected = kPlans * mean / all;
    const auto [least, most] = std::minmax_element(view.visits().begin(), view.visits().end());
    EXPECT_GT(*least, 0);
    EXPECT_LT(*most, 3 * expected);
  }
}

TEST_P(ScorePolicyContract, FiltersSmallValuesOnlyIfEnabled) {
  const auto [info, small_filter, sampling] = GetParam();
  // 399 values of 1 byte, which every score except `largest` prefers, and one of 1 MiB; the mean is
  // over 2 KiB. A sample rarely contains the large value.
  std::vector<Row> rows(400);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i].candidate = {.id = ValueId(static_cast<std::uint32_t>(i)),
                         .size = i == 123 ? 1_MiB : 1_B,
                         .offset = Bytes(0),
                         .own_cost = Nanoseconds(i == 123 ? std::int64_t{1} << 60 : 1),
                         .last_access = i == 123 ? 1000 : 0};
  }
  const FakeView view(rows, 1000);
  const auto policy = make();
  for (int round = 0; round < 20; ++round) {
    const std::int64_t before = policy->work().filtered;
    const Victims plan = policy->plan(view, kRequest);
    const std::int64_t filtered = policy->work().filtered - before;
    if (!small_filter) {
      EXPECT_EQ(filtered, 0);
      continue;
    }
    EXPECT_EQ(plan.victims, std::vector{ValueId(123)});
    if (!sampling) {
      EXPECT_EQ(filtered, 399);
    }
  }
}

TEST_P(ScorePolicyContract, FiltersBelowOnePercentOfTheMean) {
  const auto [info, small_filter, sampling] = GetParam();
  if (sampling) {
    return;  // four candidates are too few to be sampled completely every time
  }
  for (const auto& [mean, filtered] :
       {std::pair{Bytes(9'900), 1}, {Bytes(9'901), 2}, {Bytes(10'000), 2}, {Bytes(10'001), 3}}) {
    std::vector<Row> rows;
    for (std::int64_t size : {98, 99, 100, 101}) {
      rows.push_back({.candidate = {.id = ValueId(static_cast<std::uint32_t>(size)),
                                    .size = Bytes(size),
                                    .offset = Bytes(0)}});
    }
    FakeView view(rows, 0);
    view.set_mean(mean);
    const auto policy = make();
    static_cast<void>(policy->plan(view, kRequest));
    EXPECT_EQ(policy->work().filtered, small_filter ? filtered : 0) << to_string(mean);
  }
}

TEST_P(ScorePolicyContract, IgnoresAFilterThatLeavesNothing) {
  const auto policy = make();
  Rng rng(6);
  FakeView view = random_view(rng, 50, RowKind::kTies);
  view.set_mean(Bytes(std::numeric_limits<std::int64_t>::max()));
  EXPECT_EQ(policy->plan(view, kRequest).victims.size(), 1U);
}

std::string setting_name(const testing::TestParamInfo<Setting>& setting) {
  const auto [info, small_filter, sampling] = setting.param;
  std::string name(info->name);
  std::replace(name.begin(), name.end(), '-', '_');
  return name + (small_filter ? "_filter" : "") + (sampling ? "_sampling" : "");
}

std::vector<const PolicyInfo*> registered(bool only_scores) {
  std::vector<const PolicyInfo*> infos;
  for (const PolicyInfo& info : policies()) {
    const auto policy = info.make(info.defaults);
    if (info.schedule != ScheduleKind::kNone) {
      continue;  // the same as `dtr`
    }
    if (!only_scores || dynamic_cast<const detail::ScorePolicy*>(policy.get()) != nullptr) {
      infos.push_back(&info);
    }
  }
  return infos;
}

INSTANTIATE_TEST_SUITE_P(Registry, PolicyContract,
                         testing::Combine(testing::ValuesIn(registered(false)), testing::Bool(),
                                          testing::Bool()),
                         setting_name);
INSTANTIATE_TEST_SUITE_P(Registry, ScorePolicyContract,
                         testing::Combine(testing::ValuesIn(registered(true)), testing::Bool(),
                                          testing::Bool()),
                         setting_name);

TEST(PolicyRegistry, NamesAreDistinctAndFound) {
  std::set<std::string_view> names;
  for (const PolicyInfo& info : policies()) {
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
    EXPECT_EQ(&find_policy(info.name), &info);
    EXPECT_FALSE(info.summary.empty());
    EXPECT_EQ(info.summary.find('\n'), std::string_view::npos);
  }
  for (std::string_view name : {"dtr", "dtr-eq", "dtr-local", "lru", "largest", "msps", "random"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
}

TEST(PolicyRegistry, UnknownNameIsAnErrorThatListsTheKnown) {
  try {
    static_cast<void>(find_policy("dtr_eq"));
    FAIL() << "found";
  } catch (const std::invalid_argument& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("'dtr_eq'"), std::string::npos) << message;
    for (const PolicyInfo& info : policies()) {
      EXPECT_NE(message.find(info.name), std::string::npos) << message;
    }
  }
}

TEST(PolicyRegistry, NeedsMatchTheFormulas) {
  const std::set<std::string_view> windows = {"coop", "coop-move"};
  const std::set<std::string_view> defaults = {"recoup", "planned"};
  const std::set<std::string_view> futures = {"oracle", "tflms", "capuchin"};
  const std::set<std::string_view> sets = {"dtr-eq", "dte", "coop", "coop-move"};
  for (const PolicyInfo& info : policies()) {
    const PolicyNeeds needs = info.make(info.defaults)->needs();
    EXPECT_EQ(needs.equivalence, sets.contains(info.name)) << info.name;
    EXPECT_EQ(needs.free_around, info.name == "dte") << info.name;
    EXPECT_EQ(needs.blocks, windows.contains(info.name)) << info.name;
    EXPECT_EQ(needs.inputs, windows.contains(info.name) && info.defaults.chain_cost) << info.name;
    EXPECT_EQ(needs.moves, info.name == "coop-move") << info.name;
    EXPECT_EQ(needs.future, futures.contains(info.name)) << info.name;
    EXPECT_EQ(needs.copies, info.name == "capuchin") << info.name;
    EXPECT_EQ(needs.priority, info.name == "oracle") << info.name;
    EXPECT_EQ(needs.changes, defaults.contains(info.name)) << info.name;
    EXPECT_EQ(needs.walks.has_value(), defaults.contains(info.name)) << info.name;
  }
}

// Reads the first two candidates and returns the plan that the test sets.
class Rogue final : public EvictionPolicy {
 public:
  explicit Rogue(std::vector<ValueId> victims) : victims_(std::move(victims)) {}
  [[nodiscard]] std::string_view name() const noexcept override { return "rogue"; }

 private:
  Victims do_plan(const PolicyView& view, const RoomRequest& /*request*/) override {
    if (view.candidate_count() > 0) {
      static_cast<void>(view.candidate(0));
      static_cast<void>(view.candidate(1));
    }
    return {.victims = victims_};
  }
  std::vector<ValueId> victims_;
};

class PlanCheck : public testing::Test {
 protected:
  PlanCheck() : view_(rows(), 0) {}
  static std::vector<Row> rows() {
    std::vector<Row> rows(3);
    for (std::uint32_t i = 0; i < 3; ++i) {
      rows[i].candidate = {.id = ValueId(10 + i), .size = Bytes(1), .offset = Bytes(i)};
    }
    return rows;
  }
  FakeView view_;
};

TEST_F(PlanCheck, PassesDistinctCandidatesInAnyOrder) {
  const std::vector<ValueId> victims = {ValueId(11), ValueId(10)};
  EXPECT_EQ(Rogue(victims).plan(view_, kRequest).victims, victims);
}

TEST_F(PlanCheck, RefusesInvalidPlans) {
  EXPECT_THROW(Rogue({}).plan(view_, kRequest), InternalError);
  EXPECT_THROW(Rogue({ValueId(10), ValueId(10)}).plan(view_, kRequest), InternalError);
  EXPECT_THROW(Rogue({ValueId(10), ValueId(99)}).plan(view_, kRequest), InternalError);
  EXPECT_THROW(Rogue({ValueId()}).plan(view_, kRequest), InternalError);
  EXPECT_THROW(Rogue({ValueId(10)}).plan(FakeView({}, 0), kRequest), InternalError);
  // A candidate, but one that this policy has not read.
  EXPECT_THROW(Rogue({ValueId(12)}).plan(view_, kRequest), InternalError);
}

class NotANumber final : public detail::ScorePolicy {
 public:
  using ScorePolicy::ScorePolicy;
  [[nodiscard]] std::string_view name() const noexcept override { return "nan"; }

 private:
  double score(const Candidate&, double, Tick) override {
    return std::numeric_limits<double>::quiet_NaN();
  }
};

TEST_F(PlanCheck, RefusesNaNScores) {
  EXPECT_THROW(NotANumber(PolicyOptions()).plan(view_, kRequest), InternalError);
}

}  // namespace
}  // namespace recoup
