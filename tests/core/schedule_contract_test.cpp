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
