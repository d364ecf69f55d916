// Schedules on real content: they change neither bits nor the budget, they drive the steps that
// they were made for, and a simulation follows them as a live run does.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "csrc/engine/base/decisions.h"
#include "csrc/engine/base/observers.h"
#include "csrc/schedule/runner.h"
#include "csrc/simulator/simulator.h"
#include "csrc/trace/recorder.h"
#include "csrc/trace/sink.h"
#include "tests/core/support/disturbed_steps.h"
#include "tests/core/support/seeds.h"
#include "tests/core/support/step_program.h"

namespace recoup::detail {
namespace {

constexpr Bytes kAmple = 1_MiB;
constexpr int kDrivenSteps = 4;

std::vector<const PolicyInfo*> scheduled_policies() {
  std::vector<const PolicyInfo*> found;
  for (const PolicyInfo& info : policies()) {
    if (info.schedule != ScheduleKind::kNone) {
      found.push_back(&info);
    }
  }
  return found;
}

Options drawn_options(const PolicyInfo& policy, std::uint64_t seed, Bytes budget) {
  std::mt19937_64 random(seed);
  Options options;
  options.policy = policy.name;
  options.budget = budget;
  options.small_result_bytes = 64_B;
  options.check_replays = random() % 4 == 0;
  options.usefulness = random() % 5 != 0;
  options.replay_order = random() % 4 != 0 ? ReplayOrder::kMemory : ReplayOrder::kRecursive;
  return options;
}

Options with_budget(Options options, Bytes budget) {
  options.budget = budget;
  return options;
}

// Runs steps under a policy with a schedule.
class Scheduled {
 public:
  Scheduled(const PolicyInfo& policy, std::uint64_t seed, Bytes budget,
            Observer* observer = nullptr)
      : Scheduled(policy, seed, budget, drawn_options(policy, seed, budget), observer) {}
  Scheduled(const PolicyInfo& policy, std::uint64_t seed, Bytes budget, Options options,
            Observer* observer = nullptr)
      : program_(seed, with_budget(options, budget)),
        runner_(engine(), policy.schedule, budget),
        observers_{&runner_, observer} {
    engine().set_schedule(&runner_);
    engine().set_observer(&observers_);
  }
  ~Scheduled() {
    engine().set_schedule(nullptr);
    engine().set_observer(nullptr);
  }
  Scheduled(const Scheduled&) = delete;
  Scheduled& operator=(const Scheduled&) = delete;

  [[nodiscard]] Engine& engine() { return program_.program().engine(); }
  [[nodiscard]] StepProgram& program() { return program_; }
  [[nodiscard]] const ScheduleRunner& runner() const { return runner_; }
  void end_step() { observers_.on_step("step"); }

  // Returns false if the step does not fit.
  bool step(bool extra = false) {
    try {
      program_.step(extra);
    } catch (const OutOfBudget&) {
      return false;
    }
    program_.program().check();
    end_step();
    program_.program().check();
    return true;
  }

 private:
  StepProgram program_;
  ScheduleRunner runner_;
  Observers observers_;
};

class ScheduleRunnerTest : public testing::TestWithParam<const PolicyInfo*> {};

TEST_P(ScheduleRunnerTest, DrivesStepsWithoutChangingBits) {
  std::int64_t evictions = 0;
  for (std::uint64_t seed = 0; seed < seeds(60) && !HasFailure(); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Scheduled run(*GetParam(), seed, kAmple);
    ASSERT_TRUE(run.step());
    const Stats first = run.engine().stats();
    EXPECT_EQ(first.evictions, 0);
    EXPECT_EQ(run.runner().driven(), 0);
    for (int i = 1; i < kDrivenSteps; ++i) {
      ASSERT_TRUE(run.step());
    }
    EXPECT_EQ(run.runner().driven(), (kDrivenSteps - 1) * first.op_count);
    EXPECT_LE(run.engine().stats().peak_bytes, first.peak_bytes * 3 / 2);
    evictions += run.engine().stats().evictions;
  }
  // With an ample budget these two planners recompute nothing.
  const ScheduleKind kind = GetParam()->schedule;
  if (kind != ScheduleKind::kBudgeted && kind != ScheduleKind::kRotor) {
    EXPECT_GT(evictions, seeds(500));
  }
}

TEST_P(ScheduleRunnerTest, KeepsTheBudget) {
  int finished = 0;
  for (std::uint64_t seed = 0; seed < seeds(150) && !HasFailure(); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Scheduled run(*GetParam(), seed, Bytes(static_cast<std::int64_t>(1500 + 37 * (seed % 60))));
    int steps = 0;
    while (steps < kDrivenSteps && run.step()) {
      ++steps;
    }
    finished += steps == kDrivenSteps ? 1 : 0;
  }
  EXPECT_GT(finished, seeds(40));
}

TEST_P(ScheduleRunnerTest, LeavesADifferentStepToThePolicy) {
  for (std::uint64_t seed = 0; seed < seeds(30) && !HasFailure(); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Scheduled run(*GetParam(), seed, kAmple);
    ASSERT_TRUE(run.step());
    const std::int64_t ops = run.engine().stats().op_count;
    ASSERT_TRUE(run.step());
    ASSERT_TRUE(run.step(true));
    EXPECT_LT(run.runner().driven(), 2 * ops);
    const std::int64_t before = run.runner().driven();
    ASSERT_TRUE(run.step(true));  // a plan for it exists by now
    ASSERT_TRUE(run.step());      // and the one for this step still does
    EXPECT_EQ(run.runner().driven(), before + ops + 1 + ops);
  }
}

TEST_P(ScheduleRunnerTest, ASimulationDecidesAsTheLiveRun) {
  std::size_t decisions = 0;
  for (std::uint64_t seed = 0; seed < seeds(80); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    TraceBuilder builder;
    {
      TraceRecorder recorder(builder);
      Scheduled recorded(*GetParam(), seed, kAmple, &recorder);
      for (int i = 0; i < kDrivenSteps; ++i) {
        ASSERT_TRUE(recorded.step());
      }
    }
    const Trace trace = builder.take();
    const Bytes budget(static_cast<std::int64_t>(1500 + 37 * (seed % 60)));
    DecisionLog live;
    bool fits = true;
    {
      Scheduled run(*GetParam(), seed, budget, &live);
      for (int i = 0; i < kDrivenSteps && fits; ++i) {
        fits = run.step();
      }
    }
    DecisionLog simulated;
    SimulationOptions options{.engine = drawn_options(*GetParam(), seed, budget),
                              .max_time_ratio = 0};
    const SimulationResult result = Simulator(trace, options, &simulated).run();
    EXPECT_EQ(result.status == SimulationResult::Status::kOk, fits) << result.reason;
    ASSERT_EQ(simulated.decisions(), live.decisions());
    decisions += live.decisions().size();
  }
  EXPECT_GT(decisions, seeds(1000));
}

TEST_P(ScheduleRunnerTest, DisturbedStepsKeepBitsAndFreeEverything) {
  for (std::uint64_t seed = 0; seed < seeds(300) && !HasFailure(); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    DisturbedSteps steps(seed);
    const Bytes budget = steps.budget();
    Scheduled run(*GetParam(), seed, budget,
                  steps.options(drawn_options(*GetParam(), seed, Bytes(1))));
    ASSERT_NO_THROW(steps.run(run.program(), [&run] { run.end_step(); }));
  }
}

INSTANTIATE_TEST_SUITE_P(AllSchedules, ScheduleRunnerTest, testing::ValuesIn(scheduled_policies()),
                         [](const auto& param) {
                           std::string name(param.param->name);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace recoup::detail
