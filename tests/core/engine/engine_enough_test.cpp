// The budget that an error reports as enough is enough: Note [Enough].
#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <set>

#include "tests/core/support/fuzzer.h"
#include "tests/core/support/seeds.h"

namespace recoup::detail {
namespace {

constexpr std::uint64_t kProgramsAPolicy = seeds(400);
constexpr int kOpsAProgram = 60;

OutOfBudgetReport report_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const OutOfBudget& error) {
    return error.report();
  }
  ADD_FAILURE() << "no error was thrown";
  return {};
}

TEST(EngineEnough, IncludesEvictedValues) {
  Program p(plain_options(4_KiB));
  const Tensor x = p.source(1_KiB);
  std::vector<Tensor> made;
  for (int i = 0; i < 6; ++i) {
    made.push_back(p.op({x}, 1_KiB));
  }
  const OutOfBudgetReport report = report_of([&] { p.source(4_KiB); });
  EXPECT_EQ(report.enough, 11_KiB) << report.to_string();
  EXPECT_EQ(report.least, 5_KiB) << report.to_string();
  EXPECT_EQ(report.next, Bytes(6400)) << "1.25 times the lower bound";
  for (const char* const said :
       {"lower bound of the budget              5.0 KiB",
        "upper bound of the budget             11.0 KiB",
        "Next: recoup.budget(\"6.25KiB\"), or recoup run --budget 6.25KiB. It may be too small"}) {
    EXPECT_NE(report.to_string().find(said), std::string::npos) << report.to_string();
  }
}

TEST(EngineEnough, IsEnoughToRestoreEverythingAtTheEnd) {
  Program p(plain_options(4_KiB));
  const Tensor x = p.source(1_KiB);
  for (int i = 0; i < 6; ++i) {
    p.op({x}, 1_KiB);
  }
  const OutOfBudgetReport report = report_of([&] { p.engine().user().materialize_all(); });
  EXPECT_EQ(report.least, 7_KiB);
  p.grow(report.enough);
  p.engine().user().materialize_all();
  p.check();
}

TEST(EngineEnough, NoBudgetIsEnoughForMoreThanABlock) {
  Options segmented = plain_options(4_KiB);
  segmented.block_size = 1_KiB;
  Program p(segmented);
  const OutOfBudgetReport report = report_of([&] { p.source(2_KiB); });
  EXPECT_EQ(report.enough, Bytes(0));
  EXPECT_NE(report.to_string().find("No budget is enough: leave out block_size"),
            std::string::npos);
}

// A random program that depends on the seed only, not on the budget, as long as it fits.
class RandomRun {
 public:
  RandomRun(std::string_view policy, std::uint64_t seed, std::optional<Bytes> budget)
      : random_(seed), options_(draw(policy, budget)), program_(options_) {}

  // Returns the report of the first op that does not fit, or nullopt.
  std::optional<OutOfBudgetReport> run() {
    for (ops_ = 0; ops_ < kOpsAProgram; ++ops_) {
      try {
        act();
      } catch (const OutOfBudget& error) {
        program_.check();
        return error.report();
      }
      program_.check();
    }
    return std::nullopt;
  }
  [[nodiscard]] int ops() const { return ops_; }
  [[nodiscard]] Program& program() { return program_; }

 private:
  std::int64_t number(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
  }
  bool chance(int percent) { return number(1, 100) <= percent; }
  Bytes size() { return Bytes(chance(10) ? number(1, 64) : number(65, 400)); }
  Options draw(std::string_view policy, std::optional<Bytes> budget) {
    Options options;
    const Bytes drawn(number(10, 60) * 64 + number(0, 63));
    options.budget = budget.value_or(drawn);
    options.policy = policy;
    options.small_result_bytes = 64_B;
    if (chance(20)) {
      options.block_size = Bytes(64 * number(14, 20));
    }
    options.usefulness = chance(70);
    options.replay_order = chance(60) ? ReplayOrder::kMemory : ReplayOrder::kRecursive;
    options.max_depth = chance(20) ? 4 : 10000;
    options.in_place = chance(75) ? InPlace::kShare : InPlace::kCopy;
    options.placement = chance(50) ? Placement::kBestFit : Placement::kTwoEnded;
    if (chance(20)) {
      options.outside = Bytes(number(1, 500));
    }
    return options;
  }
  Tensor any() {
    const auto last = static_cast<std::int64_t>(program_.live().size()) - 1;
    return program_.live()[static_cast<std::size_t>(number(0, last))];
  }
  void act() {
    const std::int64_t dice = program_.live().empty() ? 0 : number(0, 99);
    if (dice < 66 && program_.live().size() < 16) {
      std::set<Tensor> chosen;
      for (std::int64_t i = program_.live().empty() ? 0 : number(0, 3); i > 0; --i) {
        chosen.insert(any());
      }
      Call call{.arguments = {}, .fresh = {}};
      for (const Tensor tensor : chosen) {
        const Access written = chance(70) ? Access::kUpdate : Access::kOverwrite;
        call.arguments.push_back(
            {.tensor = tensor, .access = chance(30) ? written : Access::kRead});
      }
      for (std::int64_t i = number(0, 2); i > 0; --i) {
        call.fresh.push_back(size());
      }
      for (std::int64_t i = chance(30) ? number(1, 2) : 0; i > 0; --i) {
        call.workspace.push_back(size());
      }
      call.cost = Nanoseconds(number(1, 1000));
      call.repeatable = chance(90);
      program_.run(call);
    } else if (dice < 88) {
      drop(any());
    } else if (dice < 92) {
      program_.external(size());
    } else if (dice < 95) {
      program_.pin(any());
    } else if (dice < 97) {
      if (const Tensor tensor = any(); program_.pins(tensor) > 0) {
        program_.unpin(tensor);
      }
    } else if (chance(50)) {
      program_.escape(any());
    } else {
      program_.escape_and_leave(any());
    }
  }
  void drop(Tensor tensor) {
    while (program_.pins(tensor) > 0) {
      program_.unpin(tensor);
    }
    program_.drop(tensor);
  }

  std::mt19937_64 random_;
  Options options_;
  Program program_;
  int ops_ = 0;
};

class EngineEnoughRandom : public testing::TestWithParam<std::string> {};

// The report of an op with several allocations covers the failed allocation only: the next one may
// need more. The reported budget is enough, without evictions, for everything before it.
TEST_P(EngineEnoughRandom, TheReportedBudgetPassesTheFailedOp) {
  int failed = 0;
  for (std::uint64_t seed = 0; seed < programs(kProgramsAPolicy) && !HasFailure(); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    RandomRun first(GetParam(), seed, std::nullopt);
    const auto report = first.run();
    if (!report) {
      continue;
    }
    ++failed;
    ASSERT_GT(report->enough, report->budget) << report->to_string();
    ASSERT_GE(report->enough, report->least) << report->to_string();
    RandomRun second(GetParam(), seed, report->enough);
    const auto again = second.run();
    const Stats stats = second.program().stats();
    EXPECT_GE(second.ops(), first.ops()) << report->to_string() << again->to_string();
    if (again && second.ops() == first.ops()) {
      EXPECT_GT(again->enough, report->enough) << again->to_string();
    } else if (!again) {
      EXPECT_LE(stats.peak_bytes, report->enough.count());
    }
    // At the end of the scope the budget that is reported as enough restores all evicted values.
    try {
      first.program().engine().user().materialize_all();
    } catch (const OutOfBudget& error) {
      first.program().grow(error.report().enough);
      ASSERT_NO_THROW(first.program().engine().user().materialize_all())
          << error.report().to_string();
    }
    first.program().check();
  }
  EXPECT_GT(failed, seeds(20));
}

INSTANTIATE_TEST_SUITE_P(Policies, EngineEnoughRandom,
                         testing::Values("recoup", "dtr", "lru", "largest", "coop", "random"));

}  // namespace
}  // namespace recoup::detail
