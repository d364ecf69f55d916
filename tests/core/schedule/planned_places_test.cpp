// Steps whose blocks have planned addresses: no block moves, and nothing is searched.
#include <gtest/gtest.h>

#include <functional>

#include "tests/core/support/foreseen.h"

namespace recoup::detail {
namespace {

// What a step did.
struct Done {
  std::int64_t moves = 0;
  std::int64_t plans = 0;
  std::int64_t planned = 0;
  std::int64_t misplaced = 0;
};

Done since(const Stats& before, const Stats& now) {
  return {.moves = now.moves - before.moves,
          .plans = now.plans - before.plans,
          .planned = now.planned_blocks - before.planned_blocks,
          .misplaced = now.misplaced_blocks - before.misplaced_blocks};
}

// Runs a step and returns what it did; nullopt if it does not fit.
std::optional<Done> step(Foreseen& run, bool extra = false) {
  const Stats before = run.counts();
  if (!run.step(extra)) {
    return std::nullopt;
  }
  return since(before, run.counts());
}

// Calls `then` for each of the programs whose steps get planned addresses, after the first step
// with them. Returns the number of programs for which it returned true.
int count_placed(int programs, const std::function<bool(Foreseen&)>& then,
                 StepProgram::Keep keep = StepProgram::Keep::kNothing) {
  int found = 0;
  for (std::uint64_t seed = 0; seed < static_cast<std::uint64_t>(programs); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Foreseen run(seed, step_options(budget_of(seed)), nullptr, false, keep);
    run.program().set_cost_factor(1000);  // a move costs less than most ops
    for (int i = 0; i < 5 && run.counts().planned_blocks == 0 && run.step(); ++i) {
    }
    if (run.counts().planned_blocks > 0) {
      found += then(run) ? 1 : 0;
    }
  }
  return found;
}

TEST(PlannedPlaces, AStepMovesAndSearchesNothing) {
  const int found = count_placed(seeds(80), [](Foreseen& run) {
    for (int i = 0; i < 3; ++i) {
      const std::optional<Done> done = step(run);
      EXPECT_TRUE(done && done->planned > 0);
      EXPECT_EQ(done->moves, 0);
      EXPECT_EQ(done->plans, 0);
      EXPECT_EQ(done->misplaced, 0);
    }
    return true;
  });
  EXPECT_GT(found, seeds(12));
}

// With a spill tier, copies are made as planned, too. If no layout ends as it began, a run begins
// with moves.
TEST(PlannedPlaces, AStepWithATierCopiesAsPlanned) {
  int followed = 0;
  int copied = 0;
  int rearranged = 0;
  for (std::uint64_t seed = 0; seed < static_cast<std::uint64_t>(seeds(80)); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const Bytes spill = seed % 4 == 0 ? 512_B : 1_MiB;  // in the smaller one some find no room
    Foreseen run(seed, step_options_with_tier(budget_of(seed), spill));
    run.program().set_cost_factor(1000);
    for (int i = 0; i < 5 && run.counts().planned_blocks == 0 && run.step(); ++i) {
    }
    if (run.counts().planned_blocks == 0) {
      continue;
    }
    Stats before;
    for (int i = 0; i < 4; ++i) {  // what is resident when a step begins is as planned after some
      before = run.counts();
      EXPECT_TRUE(run.step());
    }
    const Stats now = run.counts();
    run.program().program().expect_all();
    const Done done = since(before, now);
    if (done.planned == 0 || spill < 1_MiB) {
      continue;  // the plan has been set aside, or what it spills need not fit
    }
    ++followed;
    EXPECT_EQ(done.plans, 0);
    EXPECT_LE(done.misplaced, done.moves);
    rearranged += done.moves > 0 ? 1 : 0;
    copied += now.fetches > before.fetches ? 1 : 0;
  }
  EXPECT_GT(followed, seeds(12));
  EXPECT_GT(copied, seeds(5));
  EXPECT_LT(rearranged, followed / 3);
}

// A gradient that is kept until the next step has made its own lies elsewhere in each step, and is
// moved once.
TEST(PlannedPlaces, AValueThatOutlivesItsSuccessorMovesOnce) {
  const int found = count_placed(
      seeds(80),
      [](Foreseen& run) {
        EXPECT_TRUE(run.step());
        const std::optional<Done> first = step(run);
        const std::optional<Done> second = step(run);
        EXPECT_TRUE(first && second);
        EXPECT_EQ(second->moves, first->moves);
        EXPECT_EQ(second->plans + second->misplaced, 0);
        return second->moves > 0;
      },
      StepProgram::Keep::kGradients);
  EXPECT_GT(found, seeds(5));
}

// A step that differs ends where the plan does not know, and so does one with addresses that a test
// aid has changed. The steps after it go back to the plan.
TEST(PlannedPlaces, GoesBackToThePlan) {
  const auto goes_back = [&](Foreseen& run) {
    (void)run.step();
    const Done usual = step(run).value_or(Done());
    if (usual.planned == 0 || !run.step(true)) {
      return false;
    }
    run.engine().set_test_aids({.shake = true});
    if (!run.step()) {
      return false;
    }
    run.engine().set_test_aids({});
    for (int i = 0; i < 4; ++i) {
      const std::optional<Done> done = step(run);
      if (!done || done->planned == 0) {
        return false;  // the list has been set aside, or is planned again
      }
      if (i > 0 && done->misplaced + done->plans == 0) {
        return true;
      }
    }
    ADD_FAILURE() << "the step does not go back to its plan";
    return false;
  };
  const int found = count_placed(seeds(200), goes_back, StepProgram::Keep::kGradients);
  EXPECT_GE(found, seeds(4, 1));
}

// Blocks that a test aid has moved lie where the plan has others, and are moved out of the way. A
// later step moves nothing.
TEST(PlannedPlaces, BlocksInTheWayAreMoved) {
  std::int64_t planned = 0;
  std::int64_t misplaced = 0;
  const int found = count_placed(80, [&](Foreseen& run) {
    (void)run.step();
    const Stats before = run.counts();
    std::int64_t shaken = 0;
    int ops = 0;
    if (!run.step(false, [&](Program& program) {
          program.engine().set_test_aids({.shake = ++ops == 8});
          shaken = ops <= 9 ? run.counts().moves : shaken;
        })) {
      return false;
    }
    run.engine().set_test_aids({});
    const Done done = since(before, run.counts());
    planned += done.planned;
    misplaced += done.misplaced;
    const bool moved = run.counts().moves > shaken;
    bool back = false;
    for (int i = 0; i < 4 && !back; ++i) {
      const std::optional<Done> later = step(run);
      back = later && (later->moves + later->misplaced == 0 || later->planned == 0);
    }
    EXPECT_TRUE(back);
    return moved;
  });
  EXPECT_GT(found, 2);
  EXPECT_LT(misplaced, planned / 3);  // large blocks, and those that an op uses, stay
}

// A program may mark the end of a step twice.
TEST(PlannedPlaces, AnEmptyStepIsIgnored) {
  int found = 0;
  for (std::uint64_t seed = 0; seed < static_cast<std::uint64_t>(seeds(80)); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Foreseen once(seed, step_options(budget_of(seed)));
    Foreseen twice(seed, step_options(budget_of(seed)));
    once.program().set_cost_factor(1000);
    twice.program().set_cost_factor(1000);
    int steps = 0;
    for (; steps < 6 && once.step() && twice.step(); ++steps) {
      twice.end_step();
    }
    if (steps < 6) {
      continue;  // the budget is too small
    }
    EXPECT_EQ(once.counts().planned_blocks, twice.counts().planned_blocks);
    EXPECT_EQ(once.counts().foreseen_steps, twice.counts().foreseen_steps);
    EXPECT_EQ(once.counts().moves, twice.counts().moves);
    found += once.counts().planned_blocks > 0 ? 1 : 0;
  }
  EXPECT_GT(found, seeds(16));
}

// Evictions of a plan with addresses are made where it says, so a larger budget ends it.
TEST(PlannedPlaces, ALargerBudgetEndsThePlan) {
  const int found = count_placed(seeds(80), [](Foreseen& run) {
    run.program().program().grow(run.engine().budget() + 1_MiB);
    const Stats before = run.counts();
    EXPECT_TRUE(run.step());
    const Stats now = run.counts();
    EXPECT_EQ(now.planned_blocks, before.planned_blocks);
    EXPECT_EQ(now.evictions, before.evictions);
    return true;
  });
  EXPECT_GT(found, seeds(5));
}

}  // namespace
}  // namespace recoup::detail
