// Costs that a device reports some time after the op.
#include <gtest/gtest.h>

#include "tests/core/support/engine_program.h"

namespace recoup::detail {
namespace {

class EngineLateCost : public testing::Test {
 protected:
  ~EngineLateCost() override { p_.check(); }

  ValueTicket ticket(Tensor tensor) {
    return p_.engine().values().ticket(p_.engine().current(p_.id(tensor)));
  }
  void learn(const ValueTicket& made, std::int64_t cost) {
    p_.engine().op().learn_cost(made, Nanoseconds(100), Nanoseconds(cost));
  }
  std::int64_t cost_of_replay(Tensor tensor) {
    const std::int64_t before = p_.stats().replay_cost_ns;
    p_.evict(tensor);
    p_.expect(tensor);
    return p_.stats().replay_cost_ns - before;
  }

  Program p_{{.budget = 16_KiB,
              .policy = "dtr-eq",
              .small_filter = false,
              .sampling = false,
              .small_result_bytes = 64_B}};
};

TEST_F(EngineLateCost, ReplacesTheEstimate) {
  const Tensor x = p_.source(1_KiB);
  const Tensor a = p_.op({x}, 1_KiB);
  const std::int64_t before = p_.stats().op_ns;
  learn(ticket(a), 700);
  EXPECT_EQ(p_.stats().op_ns, before + 600);
  EXPECT_EQ(cost_of_replay(a), 700);
}

TEST_F(EngineLateCost, DoesNotChangeEvictedValues) {
  const Tensor x = p_.source(1_KiB);
  const Tensor a = p_.op({x}, 1_KiB);
  const ValueTicket made = ticket(a);
  p_.evict(a);
  learn(made, 700);
  EXPECT_EQ(cost_of_replay(a), 100);
}

TEST_F(EngineLateCost, OneEvictedResultKeepsTheEstimate) {
  const std::vector<Tensor> made = p_.run({.arguments = {}, .fresh = {1_KiB, 1_KiB}});
  p_.evict(made[0]);
  learn(ticket(made[1]), 700);
  EXPECT_EQ(cost_of_replay(made[1]), 100);
}

TEST_F(EngineLateCost, MayArriveAfterTheOpHasNoRecord) {
  const Tensor x = p_.source(1_KiB);
  const Tensor a = p_.op({x}, 1_KiB);
  const ValueTicket made = ticket(a);
  p_.drop(a);
  const Tensor other = p_.op({x}, 1_KiB);  // most likely with the same id
  const std::int64_t before = p_.stats().op_ns;
  learn(made, 700);
  EXPECT_EQ(p_.stats().op_ns, before + 600);
  EXPECT_EQ(cost_of_replay(other), 100);
  learn({}, 50);  // of an op whose results are sources
  EXPECT_EQ(p_.stats().op_ns, before + 550);
}

}  // namespace
}  // namespace recoup::detail
