#include "csrc/engine/base/cost_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>
#include <vector>

#include "tests/core/support/engine_program.h"

namespace recoup::detail {
namespace {

Nanoseconds learn_all(CostMemory& costs, CostKey kind, const std::vector<std::int64_t>& measured) {
  Nanoseconds belief{0};
  for (const std::int64_t each : measured) {
    belief = costs.learn(kind, Nanoseconds(each));
  }
  return belief;
}

TEST(CostMemory, HasNoEstimateForAnUnknownKind) {
  CostMemory costs;
  costs.learn(1, Nanoseconds(5));
  EXPECT_EQ(costs.belief(2), std::nullopt);
  EXPECT_EQ(costs.belief(1), Nanoseconds(5));
}

TEST(CostMemory, TakesTheLowerOfTwoMedians) {
  CostMemory costs;
  EXPECT_EQ(learn_all(costs, 1, {900, 100}), Nanoseconds(100));
  EXPECT_EQ(learn_all(costs, 1, {200, 300}), Nanoseconds(200));
}

TEST(CostMemory, ForgetsTheOldestOfNine) {
  CostMemory costs;
  EXPECT_EQ(learn_all(costs, 1, {1, 1, 1, 1, 9, 9, 9, 9}), Nanoseconds(1));
  EXPECT_EQ(learn_all(costs, 1, {9}), Nanoseconds(9));
}

TEST(CostMemory, IsTheMedianOfTheLastEight) {
  std::mt19937 random(1);
  CostMemory costs;
  std::vector<std::deque<std::int64_t>> last(5);
  for (int i = 0; i < 2000; ++i) {
    const std::size_t kind = random() % last.size();
    const auto measured = static_cast<std::int64_t>(random() % 100);
    std::deque<std::int64_t>& of_kind = last[kind];
    of_kind.push_back(measured);
    if (of_kind.size() > CostMemory::kLast) {
      of_kind.pop_front();
    }
    std::vector<std::int64_t> sorted(of_kind.begin(), of_kind.end());
    std::sort(sorted.begin(), sorted.end());
    EXPECT_EQ(costs.learn(kind + 1, Nanoseconds(measured)),
              Nanoseconds(sorted[(sorted.size() - 1) / 2]));
  }
}

TEST(CostMemory, ForgetsKindsThatWereNotMeasuredForLong) {
  CostMemory costs(64);
  costs.learn(1, Nanoseconds(7));
  for (CostKey kind = 2; kind < 1000; ++kind) {
    costs.learn(kind, Nanoseconds(1));
    costs.learn(500, Nanoseconds(3));  // measured all the time
    EXPECT_LE(costs.kinds(), 64U);
  }
  EXPECT_EQ(costs.belief(1), std::nullopt);
  EXPECT_EQ(costs.belief(500), Nanoseconds(3));
  EXPECT_EQ(costs.belief(999), Nanoseconds(1));
}

class EngineLearnsCosts : public testing::Test {
 protected:
  ~EngineLearnsCosts() override { p_.check(); }

  Tensor op(CostKey key, std::int64_t cost) {
    return p_
        .run({.arguments = {{x_, Access::kRead}},
              .fresh = {1_KiB},
              .cost = Nanoseconds(cost),
              .cost_key = key})
        .front();
  }
  std::int64_t cost_of_replay(Tensor tensor) {
    const std::int64_t before = p_.stats().replay_cost_ns;
    p_.evict(tensor);
    p_.expect(tensor);
    return p_.stats().replay_cost_ns - before;
  }

  Program p_{{.budget = 64_KiB,
              .policy = "dtr-eq",
              .small_filter = false,
              .sampling = false,
              .small_result_bytes = 64_B}};
  Tensor x_ = p_.source(1_KiB);
};

TEST_F(EngineLearnsCosts, AnOpCostsTheMedianOfItsKind) {
  op(1, 100);
  op(1, 120);
  const Tensor slow = op(1, 9000);
  EXPECT_EQ(cost_of_replay(slow), 120);
  const Tensor other = op(2, 9000);
  EXPECT_EQ(cost_of_replay(other), 9000);
}

TEST_F(EngineLearnsCosts, WithoutAKeyTheCostIsTheMeasuredOne) {
  op(0, 100);
  EXPECT_EQ(cost_of_replay(op(0, 9000)), 9000);
}

TEST_F(EngineLearnsCosts, ReplaysAreMeasured) {
  const Tensor slow = op(1, 9000);
  p_.device().replay_time = Nanoseconds(70);
  EXPECT_EQ(cost_of_replay(slow), 9000);  // the estimate at the time of the record
  EXPECT_EQ(cost_of_replay(slow), 9000);
  EXPECT_EQ(cost_of_replay(op(1, 8000)), 70);
}

TEST_F(EngineLearnsCosts, ARecordedCostDoesNotChange) {
  const Tensor first = op(1, 9000);
  for (int i = 0; i < 8; ++i) {
    op(1, 10);
  }
  EXPECT_EQ(cost_of_replay(first), 9000);
}

TEST_F(EngineLearnsCosts, TheClockAdvancesByTheEstimate) {
  op(1, 10);
  const std::int64_t before = p_.stats().op_ns;
  op(1, 9000);
  EXPECT_EQ(p_.stats().op_ns, before + 10);
}

}  // namespace
}  // namespace recoup::detail
