// Foresight on real content: it changes neither bits nor the budget, and repeated steps cost less.
#include "csrc/steps/evict/foresight.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include "csrc/engine/base/decisions.h"
#include "csrc/simulator/simulator.h"
#include "csrc/trace/recorder.h"
#include "csrc/trace/sink.h"
#include "recoup/offline/traces.h"
#include "tests/core/support/disturbed_steps.h"
#include "tests/core/support/foreseen.h"
#include "tests/core/support/recorded_steps.h"
#include "tests/core/support/seeds.h"
#include "tests/core/support/step_program.h"

namespace recoup::detail {
namespace {

// The cost of replays in step `steps` under the default policy; nullopt if it does not fit.
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
      EXPECT_EQ(cost, plain);  // nothing else changed
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

// The next step begins with the pool layout in which the list was verified. If addresses are
// planned, that is the step after the one in which blocks are moved to their places. The price of
// all moves is rounded, so that of one step's may differ by a nanosecond.
TEST(Foresight, AStepCostsWhatWasPlanned) {
  int equal = 0;
  int placed = 0;
  int followed = 0;
  for (std::uint64_t seed = 300; seed < 300 + seeds(120); ++seed) {
    Foreseen run(seed, step_options(budget_of(seed)), nullptr, false,
                 StepProgram::Keep::kGradients);
    for (int i = 0; i < 6 && run.counts().followed_steps == 0 && run.step(); ++i) {
    }
    const Stats first = run.counts();
    const bool has_places = first.planned_blocks > 0;
    if (first.followed_steps == 0 || (has_places && !run.step())) {
      continue;
    }
    const Stats stats = run.counts();
    const Stats before = has_places ? first : Stats();
    if (stats.followed_steps == before.followed_steps + 1) {
      ++followed;
      placed += has_places ? 1 : 0;
      const std::int64_t cost = stats.followed_cost_ns - before.followed_cost_ns;
      const std::int64_t expected = stats.followed_expected_ns - before.followed_expected_ns;
      equal += std::abs(cost - expected) <= 1 ? 1 : 0;
    }
  }
  EXPECT_GT(placed, followed / 4);
  EXPECT_GT(followed, seeds(16, 3));
  EXPECT_GE(equal + 1, followed);
}

TEST(Foresight, KeepsTheBudget) {
  int finished = 0;
  for (std::uint64_t seed = 100; seed < 100 + seeds(100) && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Foreseen run(seed, step_options(budget_of(seed)));
    int steps = 0;
    while (steps < 5 && run.step()) {
      ++steps;
    }
    EXPECT_LE(run.engine().stats().peak_bytes, budget_of(seed).count());
    finished += steps == 5 ? 1 : 0;
  }
  EXPECT_GT(finished, seeds(30));
}

// The first run of a step is recorded, the second is planned, and the third follows the plan.
TEST(Foresight, LeavesADifferentStepToThePolicyAndResumes) {
  int checked = 0;
  int planned_twice = 0;
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
    EXPECT_EQ(run.counts().left_steps, 0);
    if (!run.step(true)) {
      continue;
    }
    EXPECT_EQ(run.counts().left_steps, 1);
    EXPECT_EQ(run.counts().followed_steps, 1);
    EXPECT_EQ(run.counts().foreseen_steps, 1);
    ASSERT_TRUE(run.step());
    EXPECT_EQ(run.counts().followed_steps, 2);
    ASSERT_TRUE(run.step(true));
    planned_twice += run.counts().foreseen_steps >= 2 ? 1 : 0;  // both kinds of steps by now
  }
  EXPECT_GT(checked, 5);
  EXPECT_GE(planned_twice + 1, checked);  // a list is given up if the pool layout differs
}

// A step in which everything is evicted before each `every`-th op, which costs additional replays.
bool disturbed_step(Foreseen& run, int every) {
  int ops = 0;
  return run
      .step(false,
            [&ops, every](Program& program) {
              if (++ops % every == 0) {
                program.engine().user().evict_everything();
              }
            })
      .has_value();
}

// Runs steps of a program until a list of it was set aside; nullptr if that does not happen.
std::unique_ptr<Foreseen> with_list_set_aside(std::uint64_t seed) {
  auto run = std::make_unique<Foreseen>(seed, step_options(budget_of(seed)));
  if (!run->step() || !run->step() || run->counts().eviction_lists == 0) {
    return nullptr;
  }
  for (int i = 0; i < 5 && run->counts().given_up_lists == 0 && disturbed_step(*run, 3); ++i) {
  }
  EXPECT_LE(run->counts().foreseen_steps, 4);
  return run->counts().given_up_lists == 1 ? std::move(run) : nullptr;
}

// For each program of which a list was set aside: calls then(run, steps that followed a list).
// Returns the number of programs for which it returned true.
int count_set_aside(const std::function<bool(Foreseen&, std::int64_t)>& then) {
  int found = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    if (const std::unique_ptr<Foreseen> run = with_list_set_aside(seed)) {
      found += then(*run, run->counts().followed_steps) ? 1 : 0;
    }
  }
  return found;
}

TEST(Foresight, SetsAListAsideThatCostsMore) {
  const int found = count_set_aside([](Foreseen& run, std::int64_t followed) {
    for (int i = 0; i < 6 && run.step(); ++i) {  // none of them costs as much as with the list
      EXPECT_EQ(run.counts().followed_steps, followed);
    }
    return true;
  });
  EXPECT_GT(found, 3);
}

TEST(Foresight, UsesAListAgainIfThePolicyCostsMore) {
  const int found = count_set_aside([](Foreseen& run, std::int64_t followed) {
    if (!disturbed_step(run, 1) || !disturbed_step(run, 1) || !disturbed_step(run, 1) ||
        !run.step()) {
      return false;
    }
    EXPECT_EQ(run.counts().followed_steps, followed + 1);
    return true;
  });
  EXPECT_GT(found, 3);
}

// With a tier the second plan is made from the first run that follows one.
TEST(Foresight, GoesBackToTheFirstPlanIfTheSecondCostsMore) {
  int second_plans = 0;
  int back = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Foreseen run(seed, step_options_with_tier(budget_of(seed), 1_MiB));
    run.program().set_cost_factor(1000);
    const auto expected = [&](bool disturbed) {
      const std::int64_t before = run.counts().followed_expected_ns;
      const bool ran = disturbed ? disturbed_step(run, 2) : run.step().has_value();
      return ran ? run.counts().followed_expected_ns - before : 0;
    };
    std::int64_t first = 0;
    for (int i = 0; i < 6 && run.counts().planned_blocks == 0; ++i) {
      first = expected(false);
    }
    std::int64_t second = first;
    for (int i = 0; i < 3 && second == first; ++i) {
      second = expected(false);
    }
    if (second == 0 || second >= first || run.counts().planned_blocks == 0) {
      continue;
    }
    ++second_plans;
    if (expected(true) == second) {
      back += expected(false) == first ? 1 : 0;
    }
  }
  EXPECT_GT(second_plans, 0);
  EXPECT_EQ(back, second_plans);
}

// With enough addresses, as the choice between moves and evictions depends on the costs.
TEST(Foresight, KeepsAListIfAllOpsCostMore) {
  int seen = 0;
  int kept = 0;
  for (std::uint64_t seed = 300; seed < 300 + seeds(100, 60) && !testing::Test::HasFailure();
       ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Options options = step_options(budget_of(seed));
    options.addresses = 64_KiB;
    Foreseen run(seed, options, nullptr, false, StepProgram::Keep::kGradients);
    for (int i = 0; i < 4 && run.counts().eviction_lists == 0 && run.step(); ++i) {
    }
    if (run.counts().eviction_lists == 0 || !run.step()) {
      continue;
    }
    const Stats before = run.counts();
    if (before.followed_expected_ns == 0 ||
        before.followed_cost_ns != before.followed_expected_ns || before.foreseen_steps != 1) {
      continue;  // the pool layout differed
    }
    int steps = 0;
    for (const int factor : {3, 7, 20}) {
      run.program().set_cost_factor(factor);
      steps += run.step() ? 1 : 0;  // other evictions keep other sources: not every step fits
    }
    const Stats after = run.counts();
    ++seen;
    kept += steps == 3 && after.followed_steps == before.followed_steps + 3 &&
                    after.given_up_lists == 0 && after.foreseen_steps == 1
                ? 1
                : 0;
  }
  EXPECT_GT(seen, seeds(10, 4));
  EXPECT_GE(kept + 2, seen);  // the pool layout may differ in a few
}

TEST(Foresight, PlansAgainForAnotherBudget) {
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

TEST(Foresight, ASimulationDecidesAsTheLiveRun) {
  std::size_t decisions = 0;
  for (std::uint64_t seed = 0; seed < seeds(40); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const Trace trace = record_steps(seed, step_options(1_MiB, "recoup"));
    const Bytes budget = budget_of(seed);
    DecisionLog live;
    bool fits = true;
    {
      Foreseen run(seed, step_options(budget), &live);
      for (int i = 0; i < 5 && fits; ++i) {
        fits = run.step().has_value();
      }
    }
    // As simulate() does, with the same amount of work per plan.
    DecisionLog simulated;
    Simulator simulator(trace, {.engine = step_options(budget), .max_time_ratio = 0}, nullptr);
    Foresight foresight(simulator.engine(), {.work = kWork});
    simulator.engine().set_victim_plan(&foresight);
    simulator.observe(&foresight, &simulated);
    const SimulationResult result = simulator.run();
    EXPECT_EQ(result.status == SimulationResult::Status::kOk, fits) << result.reason;
    ASSERT_EQ(simulated.decisions(), live.decisions());
    decisions += live.decisions().size();
  }
  EXPECT_GT(decisions, seeds(500));
}

// A plan can come into force at any op, and the trace records at which one.
TEST(Foresight, ASimulationFollowsThePlansOfATrace) {
  std::int64_t listed = 0;
  std::int64_t placed = 0;
  for (std::uint64_t seed = 0; seed < seeds(160) && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const bool on_thread = seed % 4 != 0;
    const Options options = step_options(budget_of(seed));
    DecisionLog live;
    TraceBuilder builder;
    bool fits = true;
    {
      TraceRecorder recorder(builder);
      Observers observers{&live, &recorder};
      Foreseen run(seed, options, &observers, on_thread);
      for (int i = 0; i < 8 && fits; ++i) {
        fits = run.step(i == 5).has_value();
        if (seed % 2 == 0) {
          run.wait();
        }
      }
      listed += run.counts().listed_evictions;
      placed += run.counts().planned_blocks;
    }
    const Trace trace = builder.take();
    if (!fits || trace.plans.empty()) {
      continue;  // an op that failed is not in a trace
    }
    std::vector<Decision> simulated;
    const SimulationResult result =
        simulate(trace, {.engine = options, .max_time_ratio = 0}, &simulated);
    EXPECT_EQ(result.status, SimulationResult::Status::kOk) << result.reason;
    ASSERT_EQ(simulated, live.decisions());
    // Wrong plans in a file may change decisions only.
    std::mt19937_64 random(seed);
    Trace strange = trace;
    for (TraceEviction& eviction : strange.evictions) {
      eviction.op = static_cast<std::uint32_t>(random() % 40);
      eviction.slot = static_cast<std::uint32_t>(random() % 3);
    }
    for (TraceBlock& block : strange.blocks) {
      block.at = Bytes(static_cast<std::int64_t>(random() % 64) * 64);
      block.evictions = static_cast<std::uint32_t>(random() % 99);
    }
    for (TraceStart& start : strange.starts) {
      start.at = Bytes(static_cast<std::int64_t>(random() % 64) * 64);
    }
    ASSERT_NO_THROW((void)simulate(strange, {.engine = options, .max_time_ratio = 0}));
  }
  EXPECT_GT(listed, seeds(50));
  EXPECT_GT(placed, seeds(500));
}

// The program waits for the thread after each step, so both runs must be equal.
TEST(Foresight, PlansOnAThread) {
  std::int64_t followed = 0;
  for (std::uint64_t seed = 0; seed < seeds(30, 15) && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Foreseen on_thread(seed, step_options(budget_of(seed)), nullptr, true);
    Foreseen at_step_end(seed, step_options(budget_of(seed)));
    for (int i = 0; i < 10; ++i) {
      const std::optional<std::int64_t> cost = on_thread.step();
      on_thread.wait();
      ASSERT_EQ(cost, at_step_end.step()) << "step " << i;
      if (!cost) {
        break;
      }
    }
    EXPECT_EQ(on_thread.counts().followed_steps, at_step_end.counts().followed_steps);
    EXPECT_EQ(on_thread.counts().given_up_lists, at_step_end.counts().given_up_lists);
    followed += on_thread.counts().followed_steps;
  }
  EXPECT_GT(followed, seeds(20, 3));
}

// A plan can come into force at any op.
TEST(Foresight, WorksWithoutWaitingForPlans) {
  for (std::uint64_t seed = 0; seed < 30 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Foreseen run(seed, step_options(budget_of(seed)), nullptr, true);
    for (int i = 0; i < 10 && run.step(); ++i) {
    }
    EXPECT_LE(run.engine().stats().peak_bytes, budget_of(seed).count());
  }
}

TEST(Foresight, DisturbedStepsKeepBitsAndFreeEverything) {
  for (std::uint64_t seed = 0; seed < seeds(200) && !testing::Test::HasFailure(); ++seed) {
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
