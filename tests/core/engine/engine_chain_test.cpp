// DTR's theorem (section 3 and appendix A of the paper): a chain of N ops, forward and backward,
// runs in 2 ceil(sqrt(N)) units of memory with O(N) ops in total.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/core/support/engine_program.h"

namespace recoup::detail {
namespace {

constexpr Bytes kLink = 64_B;

Options chain_options(std::string policy, std::int64_t budget_units) {
  Options options;
  options.budget = Bytes(budget_units * kLink.count());
  options.policy = std::move(policy);
  options.small_filter = false;
  options.sampling = false;
  options.max_replay_ratio = 0;
  options.small_result_bytes = Bytes(0);
  options.max_depth = 1'000'000;
  return options;
}

//   f1 -> f2 -> ... -> fN           f[i + 1] = forward(f[i])
//    \     \            \           g[i] = backward(f[i], g[i + 1]), then f[i] and g[i + 1] die
//   g1 <- g2 <- ... <- gN
// Returns the number of ops that ran, including replays.
std::int64_t train_chain(const std::string& policy, std::int64_t length) {
  const auto root = static_cast<std::int64_t>(std::ceil(std::sqrt(length)));
  Program program(chain_options(policy, 2 * root));
  std::vector<Tensor> forward{program.op({}, kLink)};
  while (std::ssize(forward) < length) {
    forward.push_back(program.op({forward.back()}, kLink));
  }
  Tensor gradient = program.op({forward.back()}, kLink);
  program.drop(forward.back());
  for (std::size_t i = forward.size() - 1; i-- > 0;) {
    const Tensor next = program.op({forward[i], gradient}, kLink);
    program.drop(forward[i]);
    program.drop(gradient);
    gradient = next;
  }
  program.expect(gradient);
  program.check();
  const Stats stats = program.stats();
  EXPECT_EQ(stats.op_count, 2 * length);
  EXPECT_LE(stats.peak_bytes, 2 * root * kLink.count());
  return stats.op_count + stats.replays;
}

TEST(EngineChain, RunsInMemoryOfTheRootOfItsLengthWithLinearWork) {
  for (const std::int64_t length : {100, 400, 1600}) {
    const std::int64_t ops = train_chain("dtr-eq", length);
    RecordProperty("ops_" + std::to_string(length), std::to_string(ops));
    EXPECT_LE(ops, 4 * length) << "N = " << length;
    EXPECT_LT(ops, train_chain("lru", length)) << "N = " << length;
  }
}

TEST(EngineChain, AVeryDeepReplayNeedsNoRecursion) {
  constexpr std::int64_t kLength = 20'000;
  Program program(chain_options("dtr-eq", 40));
  Tensor last = program.op({}, kLink);
  for (std::int64_t i = 1; i < kLength; ++i) {
    const Tensor next = program.op({last}, kLink);
    program.drop(last);
    last = next;
  }
  program.engine().user().evict_everything();
  EXPECT_EQ(program.engine().charged(), Bytes(0));
  program.expect(last);
  EXPECT_EQ(program.stats().replays, kLength);
  EXPECT_EQ(program.stats().replay_depth_max, kLength);
  program.engine().user().evict_everything();
  const Tensor next = program.op({last}, kLink);
  EXPECT_EQ(program.stats().replay_chain_max, kLength);
  program.check();
  program.drop(next);
  program.drop(last);  // the removal of the whole lineage needs no recursion either
  EXPECT_EQ(program.stats().live_ops, 0);
}

// A storage that is overwritten many times.
TEST(EngineChain, ManyVersionsOfAStorageNeedNoRecursion) {
  constexpr std::int64_t kLength = 20'000;
  Program program(chain_options("lru", 40));
  const Tensor input = program.source(kLink);
  const Tensor state = program.op({input}, kLink);
  for (std::int64_t i = 1; i < kLength; ++i) {
    program.update(state, {input});
  }
  program.engine().user().evict_everything();
  program.expect(state);
  EXPECT_EQ(program.stats().replays, kLength);
  program.check();
  program.update(input);  // freezes the last version
  EXPECT_TRUE(program.non_recomputable(state));
  EXPECT_EQ(program.stats().live_ops, 0);
}

// A value whose replay costs 3 s is evicted before each op that reads it.
class SlowRun {
 public:
  explicit SlowRun(double max_slowdown) : program_(options_with(max_slowdown)) {
    value_ = program_
                 .run({.arguments = {{.tensor = program_.source(kLink)}},
                       .fresh = {kLink},
                       .cost = Nanoseconds(3'000'000'000)})
                 .front();
  }
  // Runs ops with one replay each until one fails, at most `most`; returns the number of replays.
  std::int64_t run(int most) {
    const std::int64_t before = program_.stats().replays;
    try {
      for (int i = 0; i < most; ++i) {
        program_.evict(value_);
        program_.drop(program_.op({value_}, kLink));
      }
    } catch (const OutOfBudget& error) {
      EXPECT_NE(std::string(error.what()).find("(max_slowdown)"), std::string::npos)
          << error.what();
      EXPECT_GT(error.report().next, error.report().budget);
    }
    program_.check();
    return program_.stats().replays - before;
  }
  [[nodiscard]] Program& program() { return program_; }

 private:
  static Options options_with(double max_slowdown) {
    Options options = chain_options("lru", 4);
    options.max_slowdown = max_slowdown;
    options.cost_model = CostModel::kMeasured;
    return options;
  }
  Program program_;
  Tensor value_;
};

// After n replays the run takes 1 + n times as long as its ops.
TEST(EngineChain, RunsWhoseReplaysCostTooMuchAreStopped) {
  SlowRun limited(7);
  EXPECT_EQ(limited.run(100), 7);
  EXPECT_EQ(limited.program().device().slow_ratios.size(), 1U);
  EXPECT_NEAR(limited.program().device().slow_ratios[0], 6, 0.1);
  EXPECT_EQ(limited.run(100), 7) << "replays before an error count again";
  EXPECT_EQ(limited.run(7), 7);
  limited.program().grow(Bytes(5 * kLink.count()));
  EXPECT_EQ(limited.run(100), 7) << "replays in a smaller budget count";
  EXPECT_EQ(limited.program().device().slow_ratios.size(), 1U);
}

TEST(EngineChain, RunsWithoutABoundAreNotStopped) {
  SlowRun unlimited(0);
  EXPECT_EQ(unlimited.run(100), 100);
}

TEST(EngineChain, ReplaysOfLessThanTenSecondsAreNotTooSlow) {
  SlowRun limited(1);
  EXPECT_EQ(limited.run(3), 3);
  EXPECT_EQ(limited.run(100), 1);
}

}  // namespace
}  // namespace recoup::detail
