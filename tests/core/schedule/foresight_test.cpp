// Foresight on real content: it changes no bit and no budget, and steps that repeat cost less.
#include "csrc/foresight/foresight.h"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include "csrc/engine/base/decisions.h"
#include "csrc/simulate/simulator.h"
#include "csrc/trace/recorder.h"
#include "csrc/trace/sink.h"
#include "tests/core/support/disturbed_steps.h"
#include "tests/core/support/step_program.h"

namespace recoup::detail {
namespace {

constexpr std::int64_t kWork = 30'000;

Options step_options(Bytes budget, const std::string& policy = "planned") {
  Options options;
  options.policy = policy;
  options.budget = budget;
  options.small_result_bytes = 64_B;
  options.move_ns_per_byte = 0.1;
  return options;
}

Bytes budget_of(std::uint64_t seed) {
  return Bytes(static_cast<std::int64_t>(1500 + 37 * (seed % 60)));
}

// A run of some steps that are foreseen.
class Foreseen {
 public:
  Foreseen(std::uint64_t seed, const Options& options, Observer* observer = nullptr,
           bool beside = false, StepProgram::Keep keep = StepProgram::Keep::kNothing)
      : program_(seed, options, keep),
        foresight_(engine(), {.work = kWork, .beside = beside}),
        observers_(&foresight_, observer) {
    engine().set_planned(&foresight_);
    engine().set_observer(&observers_);
  }
  ~Foreseen() {
    engine().set_planned(nullptr);
    engine().set_observer(nullptr);
  }
  Foreseen(const Foreseen&) = delete;
  Foreseen& operator=(const Foreseen&) = delete;

  [[nodiscard]] Engine& engine() { return program_.program().engine(); }
  [[nodiscard]] StepProgram& program() { return program_; }
  [[nodiscard]] Stats counts() { return engine().stats(); }
  // For a plan that is made beside the program; the next op takes it.
  void wait() const {
    while (foresight_.disturbs()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  void end_step() { observers_.on_step("step"); }

  // What its replays cost; none: it does not fit.
  std::optional<std::int64_t> step(bool extra = false, StepProgram::BeforeOp before_op = nullptr) {
    const std::int64_t before = engine().counters().replay_cost_ns;
    try {
      program_.step(extra, std::move(before_op));
    } catch (const OutOfBudget&) {
      return std::nullopt;
    }
    program_.program().check();
    const std::int64_t cost = engine().counters().replay_cost_ns - before;
    end_step();
    program_.program().check();
    return cost;
  }

 private:
  StepProgram program_;
  Foresight foresight_;
  ObserverPair observers_;
};

// Of step `steps` under the default; none: it does not fit.
std::optional<std::int64_t> default_cost(std::uint64_t seed, Bytes budget, int steps) {
  StepProgram program(seed, step_options(budget, "recoup"));
  std::int64_t before = 0;
  try {
    for (int i = 0; i < steps; ++i) {
      before = program.program().engine().counters().replay_cost_ns;
      program.step();
    }
  } catch (const OutOfBudget&) {
    return std::nullopt;
  }
  return program.program().engine().counters().replay_cost_ns - before;
}

TEST(Foresight, StepsThatRepeatCostLess) {
  std::int64_t with_lists = 0;
  std::int64_t by_default = 0;
  int lists = 0;
  for (std::uint64_t seed = 0; seed < 60 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Foreseen run(seed, step_options(budget_of(seed)));
    std::optional<std::int64_t> cost = 0;
    for (int i = 0; i < 4 && cost; ++i) {
      cost = run.step();
    }
    const std::optional<std::int64_t> plain = default_cost(seed, budget_of(seed), 4);
    if (run.counts().eviction_lists == 0) {
      EXPECT_EQ(cost, plain);  // nothing else has changed
      continue;
    }
    ASSERT_TRUE(cost);
    ++lists;
    with_lists += *cost;
    by_default += plain.value_or(*cost);
  }
  EXPECT_GT(lists, 5);
  EXPECT_LT(with_lists * 100, by_default * 99);
}

// The next step begins in the pool that the list was verified in.
TEST(Foresight, AStepCostsWhatWasPlanned) {
  int equal = 0;
  int followed = 0;
  for (std::uint64_t seed = 300; seed < 600; ++seed) {
    Foreseen run(seed, step_options(budget_of(seed)), nullptr, false,
                 StepProgram::Keep::kGradients);
    for (int i = 0; i < 6 && run.counts().followed_steps == 0 && run.step(); ++i) {
    }
    if (const Stats stats = run.counts(); stats.followed_steps > 0) {
      ++followed;
      equal += stats.followed_cost_ns == stats.followed_expected_ns ? 1 : 0;
    }
  }
  EXPECT_GT(followed, 40);
  EXPECT_GE(equal + 2, followed);
}

TEST(Foresight, KeepsTheBudget) {
  int finished = 0;
  for (std::uint64_t seed = 100; seed < 200 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Foreseen run(seed, step_options(budget_of(seed)));
    int steps = 0;
    while (steps < 5 && run.step()) {
      ++steps;
    }
    EXPECT_LE(run.engine().stats().peak_bytes, budget_of(seed).count());
    finished += steps == 5 ? 1 : 0;
  }
  EXPECT_GT(finished, 30);
}

// The first run of a step is seen, the second one planned, the third one driven.
TEST(Foresight, LeavesAStepThatDiffersToThePolicyAndComesBack) {
  int checked = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Foreseen run(seed, step_options(budget_of(seed)));
    if (!run.step() || !run.step() || run.counts().eviction_lists == 0) {
      continue;
    }
    ++checked;
    EXPECT_EQ(run.counts().foreseen_steps, 1);
    ASSERT_TRUE(run.step());
    EXPECT_EQ(run.counts().followed_steps, 1);
    if (!run.step(true)) {
      continue;
    }
    EXPECT_EQ(run.counts().followed_steps, 1);
    EXPECT_EQ(run.counts().foreseen_steps, 1);
    ASSERT_TRUE(run.step());
    EXPECT_EQ(run.counts().followed_steps, 2);
    ASSERT_TRUE(run.step(true));
    EXPECT_EQ(run.counts().foreseen_steps, 2);  // of both by now
  }
  EXPECT_GT(checked, 5);
}

// Replays that nobody planned.
TEST(Foresight, GivesUpAListThatTurnsOutDearer) {
  int given_up = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Foreseen run(seed, step_options(budget_of(seed)));
    if (!run.step() || !run.step() || run.counts().eviction_lists == 0) {
      continue;
    }
    const auto disturbed = [&run] {
      int ops = 0;
      return run.step(false, [&ops](Program& program) {
        if (++ops % 3 == 0) {
          program.engine().user().evict_everything();
        }
      });
    };
    for (int i = 0; i < 4; ++i) {
      if (!disturbed()) {
        break;
      }
    }
    given_up += static_cast<int>(run.counts().given_up_lists);
    EXPECT_LE(run.counts().foreseen_steps, 2);
  }
  EXPECT_GT(given_up, 0);
}

TEST(Foresight, KeepsAListWhenAllCostsMore) {
  int seen = 0;
  int kept = 0;
  for (std::uint64_t seed = 300; seed < 400 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Foreseen run(seed, step_options(budget_of(seed)), nullptr, false,
                 StepProgram::Keep::kGradients);
    for (int i = 0; i < 4 && run.counts().eviction_lists == 0 && run.step(); ++i) {
    }
    if (run.counts().eviction_lists == 0 || !run.step()) {
      continue;
    }
    const Stats before = run.counts();
    if (before.followed_expected_ns == 0 ||
        before.followed_cost_ns != before.followed_expected_ns || before.foreseen_steps != 1) {
      continue;  // the pool was another one
    }
    for (const int factor : {3, 7, 20}) {
      run.program().set_cost_factor(factor);
      ASSERT_TRUE(run.step());
    }
    EXPECT_EQ(run.counts().followed_steps, before.followed_steps + 3);
    EXPECT_EQ(run.counts().given_up_lists, 0);
    ++seen;
    kept += run.counts().foreseen_steps == 1 ? 1 : 0;
  }
  EXPECT_GT(seen, 10);
  EXPECT_GE(kept + 2, seen);  // the pool may be another one
}

TEST(Foresight, PlansAnewForAnotherBudget) {
  int checked = 0;
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Foreseen run(seed, step_options(budget_of(seed)));
    if (!run.step() || !run.step()) {
      continue;
    }
    const std::int64_t plans = run.counts().foreseen_steps;
    EXPECT_EQ(plans, 1);
    run.program().program().grow(budget_of(seed) + 256_B);
    ASSERT_TRUE(run.step());
    ASSERT_TRUE(run.step());
    EXPECT_GT(run.counts().foreseen_steps, plans);
    ++checked;
  }
  EXPECT_GT(checked, 5);
}

TEST(Foresight, ASimulationDecidesAsTheLiveRunDoes) {
  std::size_t decisions = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    TraceBuilder builder;
    {
      TraceRecorder recorder(builder);
      StepProgram recorded(seed, step_options(1_MiB, "recoup"));
      recorded.program().engine().set_observer(&recorder);
      for (int i = 0; i < 5; ++i) {
        recorded.step();
        recorder.on_step("step");
      }
      recorded.program().engine().set_observer(nullptr);
    }
    const Trace trace = builder.take();
    const Bytes budget = budget_of(seed);
    DecisionLog live;
    bool fits = true;
    {
      Foreseen run(seed, step_options(budget), &live);
      for (int i = 0; i < 5 && fits; ++i) {
        fits = run.step().has_value();
      }
    }
    // The same as simulate(), with as much work a plan.
    DecisionLog simulated;
    Simulator simulator(trace, {.engine = step_options(budget), .max_time_ratio = 0}, nullptr);
    Foresight foresight(simulator.engine(), {.work = kWork});
    ObserverPair observers(&foresight, &simulated);
    simulator.engine().set_planned(&foresight);
    simulator.observe(&observers);
    const SimulationResult result = simulator.run();
    EXPECT_EQ(result.status == SimulationResult::Status::kOk, fits) << result.reason;
    ASSERT_EQ(simulated.decisions(), live.decisions());
    decisions += live.decisions().size();
  }
  EXPECT_GT(decisions, 500U);
}

// Plans come into force at any op, and the trace says at which.
TEST(Foresight, ASimulationFollowsThePlansOfATrace) {
  std::int64_t listed = 0;
  for (std::uint64_t seed = 0; seed < 160 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const bool beside = seed % 4 != 0;
    const Options options = step_options(budget_of(seed));
    DecisionLog live;
    TraceBuilder builder;
    bool fits = true;
    {
      TraceRecorder recorder(builder);
      ObserverPair observers(&live, &recorder);
      Foreseen run(seed, options, &observers, beside);
      for (int i = 0; i < 8 && fits; ++i) {
        fits = run.step(i == 5).has_value();
        if (seed % 2 == 0) {
          run.wait();
        }
      }
      listed += run.counts().listed_evictions;
    }
    const Trace trace = builder.take();
    if (!fits || trace.plans.empty()) {
      continue;  // what failed is not in a trace
    }
    std::vector<Decision> simulated;
    const SimulationResult result =
        simulate(trace, {.engine = options, .max_time_ratio = 0}, &simulated);
    EXPECT_EQ(result.status, SimulationResult::Status::kOk) << result.reason;
    ASSERT_EQ(simulated, live.decisions());
    // Whatever a file says of plans: nothing but decisions may change.
    std::mt19937_64 random(seed);
    Trace strange = trace;
    for (TraceEviction& eviction : strange.evictions) {
      eviction.op = static_cast<std::uint32_t>(random() % 40);
      eviction.slot = static_cast<std::uint32_t>(random() % 3);
    }
    ASSERT_NO_THROW((void)simulate(strange, {.engine = options, .max_time_ratio = 0}));
  }
  EXPECT_GT(listed, 50);
}

// A step that needs replays, in the least of some budgets in which it fits.
RecordedStep recorded_step(std::uint64_t seed) {
  for (std::int64_t budget = 1200;; budget += 100) {
    StepProgram program(seed, step_options(Bytes(budget)));
    try {
      program.step();
      const StepLog log(program.program().engine());
      StepRecorder recorder(program.program().engine(), log);
      program.program().engine().set_observer(&recorder.observer());
      program.step();
      program.program().engine().set_observer(nullptr);
      return recorder.take(false);
    } catch (const OutOfBudget&) {
      program.program().engine().set_observer(nullptr);
    }
  }
}

TEST(PlannerThread, FindsWhatIsFoundWithoutAThread) {
  PlannerThread thread;
  int lists = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const RecordedStep step = recorded_step(seed % 8);
    const auto expected = plan_step(step, EvictionList(), kWork);
    EXPECT_FALSE(thread.busy());
    thread.start({.step = step, .before = {}, .work = kWork, .hash = seed});
    EXPECT_TRUE(thread.busy());
    std::optional<PlannerThread::Found> found;
    while (!(found = thread.take())) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));  // the planner has no priority
    }
    EXPECT_FALSE(thread.busy());
    EXPECT_EQ(found->hash, seed);
    ASSERT_EQ(found->evictions.has_value(), expected.has_value());
    if (expected) {
      ++lists;
      EXPECT_EQ(found->evictions->list, expected->list);
      EXPECT_EQ(found->evictions->expected, expected->expected);
    }
  }
  EXPECT_GT(lists, 2);
}

TEST(PlannerThread, StopsWhenItIsTold) {
  const RecordedStep step = recorded_step(3);
  PlannerThread thread;
  for (int i = 0; i < 20; ++i) {
    thread.start({.step = step, .before = {}, .work = std::int64_t{1} << 60, .hash = 1});
    thread.cancel();  // or this test never ends
    EXPECT_FALSE(thread.busy());
    EXPECT_FALSE(thread.take());
  }
  thread.start({.step = step, .before = {}, .work = std::int64_t{1} << 60, .hash = 1});
}

// Nothing but the thread differs while the program waits for it where its steps end.
TEST(Foresight, PlansBesideTheProgram) {
  std::int64_t followed = 0;
  for (std::uint64_t seed = 0; seed < 30 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Foreseen beside(seed, step_options(budget_of(seed)), nullptr, true);
    Foreseen there(seed, step_options(budget_of(seed)));
    for (int i = 0; i < 10; ++i) {
      const std::optional<std::int64_t> cost = beside.step();
      beside.wait();
      ASSERT_EQ(cost, there.step()) << "step " << i;
      if (!cost) {
        break;
      }
    }
    EXPECT_EQ(beside.counts().followed_steps, there.counts().followed_steps);
    EXPECT_EQ(beside.counts().given_up_lists, there.counts().given_up_lists);
    followed += beside.counts().followed_steps;
  }
  EXPECT_GT(followed, 50);
}

// Plans come into force at any op.
TEST(Foresight, NeedsNoWaiting) {
  for (std::uint64_t seed = 0; seed < 30 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Foreseen run(seed, step_options(budget_of(seed)), nullptr, true);
    for (int i = 0; i < 10 && run.step(); ++i) {
    }
    EXPECT_LE(run.engine().stats().peak_bytes, budget_of(seed).count());
  }
}

TEST(Foresight, WhateverHappensNoBitChangesAndNothingStays) {
  for (std::uint64_t seed = 0; seed < 200 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    DisturbedSteps steps(seed);
    Options options = step_options(steps.budget());
    options = steps.options(options);
    Foreseen run(seed, options);
    ASSERT_NO_THROW(steps.run(run.program(), [&run] { run.end_step(); }));
  }
}

}  // namespace
}  // namespace recoup::detail
