// What schedules must not do, on programs by hand: each test is a way to do harm.
#include <gtest/gtest.h>

#include <vector>

#include "tests/core/engine_program.h"

namespace recoup::detail {
namespace {

Options options_of(Bytes budget) {
  Options options;
  options.budget = budget;
  options.small_leaf = 64_B;
  return options;
}

// Keeps nothing that a replay passes through.
class KeepsNothing final : public Conductor {
 public:
  void before_op(std::string_view /*name*/, std::span<const Operand> /*operands*/) override {}
  void after_op() override {}
  [[nodiscard]] bool keeps(const ValueTicket& /*ticket*/) const override { return false; }
};

TEST(ScheduleContract, WhatIsRestoredMayDieMeanwhile) {
  Program program(options_of(1400_B));
  Engine& engine = program.engine();
  const Tensor x = program.external(100_B);
  const Tensor a = program.op({x}, 100_B);
  const Tensor b =
      program.run({.arguments = {{.tensor = a}}, .fresh = {100_B}, .workspace = {600_B}}).front();
  const Tensor c = program.op({b}, 100_B);
  const ValueTicket ticket = engine.ticket(engine.current(program.id(b)));
  program.drop(b);
  program.evict(a);
  ASSERT_TRUE(engine.value(ticket.value).evicted());
  program.pin(program.leaf(700_B));  // no room for b's workspace any more
  program.device().during_kernel = [&] { program.drop(c); };
  const ValueTicket tickets[] = {ticket};
  engine.restore(tickets);
  EXPECT_EQ(program.stats().restarts, 1);
  EXPECT_FALSE(engine.holds(ticket));
  program.check();
  // Nothing was done to the record of whatever has the id next.
  EXPECT_FALSE(program.value(program.external(10_B)).kept);
  EXPECT_FALSE(program.value(program.external(10_B)).kept);
}

TEST(ScheduleContract, DroppingWhatAReplayPassesMakesNothingTwice) {
  for (const ReplayOrder order : {ReplayOrder::kMemory, ReplayOrder::kRecursive}) {
    Options options = options_of(1_MiB);
    options.replay_order = order;
    Program program(options);
    KeepsNothing conductor;
    program.engine().set_conductor(&conductor);
    std::vector<Tensor> chain(3, program.external(100_B));
    while (chain.size() < 25) {
      chain.push_back(program.op({chain[chain.size() - 3], chain.back()}, 100_B));
    }
    for (std::size_t i = 3; i + 1 < chain.size(); ++i) {
      program.drop(chain[i]);
    }
    program.evict(chain.back());
    program.engine().evict_everything();
    program.expect(chain.back());
    EXPECT_EQ(program.stats().replays, 22);
    program.check();
    program.engine().set_conductor(nullptr);
  }
}

}  // namespace
}  // namespace recoup::detail
