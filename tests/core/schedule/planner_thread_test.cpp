// The planner's thread: it finds what plan_step finds, publishes a first list, and stops when
// asked.
#include "csrc/steps/evict/planner_thread.h"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "csrc/steps/evict/planner.h"
#include "csrc/steps/trial/recorded_step.h"
#include "tests/core/support/recorded_steps.h"
#include "tests/core/support/seeds.h"
#include "tests/core/support/step_program.h"

namespace recoup::detail {
namespace {

constexpr std::int64_t kPlannerWork = seeds(30'000, 8'000);

// A step that needs replays, in the smallest of some budgets in which it fits.
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

TEST(PlannerThread, FindsTheSameListsAsWithoutAThread) {
  PlannerThread thread;
  int lists = 0;
  for (std::uint64_t seed = 0; seed < seeds(20); ++seed) {
    const RecordedStep step = recorded_step(seed % 8);
    const auto expected = plan_step(step, EvictionList(), kPlannerWork);
    EXPECT_FALSE(thread.busy());
    thread.start({.step = step, .before = {}, .work = kPlannerWork, .hash = seed});
    EXPECT_TRUE(thread.busy());
    std::optional<PlannerThread::Found> found;
    while (thread.busy()) {
      if (std::optional<PlannerThread::Found> next = thread.take()) {
        EXPECT_EQ(next->hash, seed);
        EXPECT_TRUE(!thread.busy() || next->evictions);  // the first result is a list
        found = std::move(next);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));  // the planner has low priority
    }
    ASSERT_TRUE(found);
    ASSERT_EQ(found->evictions.has_value(), expected.has_value());
    if (expected) {
      ++lists;
      EXPECT_EQ(found->evictions->list, expected->list);
      EXPECT_EQ(found->evictions->expected, expected->expected);
    }
  }
  EXPECT_GT(lists, seeds(2));
}

// The policy's own evictions are a list before the searches begin, and the result if they find none
// that is better.
TEST(PlannerThread, TheFirstListIsThatOfThePolicy) {
  int better = 0;
  int own = 0;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const RecordedStep step = recorded_step(seed);
    std::vector<StepEvictions> first;
    const auto found = plan_step(step, EvictionList(), kPlannerWork, nullptr,
                                 [&](const StepEvictions& each) { first.push_back(each); });
    ASSERT_LE(first.size(), 1U);
    if (first.empty()) {
      continue;
    }
    ASSERT_TRUE(found);
    EXPECT_LE(found->expected.total, first[0].expected.total);
    EXPECT_LE(first[0].expected.total, first[0].by_policy->total + first[0].by_policy->total / 500);
    (found->list == first[0].list ? own : better) += 1;
    std::vector<StepEvictions> again;
    (void)plan_step(step, first[0].list, kPlannerWork, nullptr,
                    [&](const StepEvictions& each) { again.push_back(each); });
    EXPECT_TRUE(again.empty());  // a list is in use
  }
  EXPECT_GT(better, 0);
  EXPECT_GT(own + better, 4);
}

TEST(PlannerThread, StopsWhenCancelled) {
  const RecordedStep step = recorded_step(3);
  PlannerThread thread;
  for (int i = 0; i < 20; ++i) {
    thread.start({.step = step, .before = {}, .work = std::int64_t{1} << 60, .hash = 1});
    thread.cancel();  // without it this test would never end
    EXPECT_FALSE(thread.busy());
    EXPECT_FALSE(thread.take());
  }
  thread.start({.step = step, .before = {}, .work = std::int64_t{1} << 60, .hash = 1});
}

}  // namespace
}  // namespace recoup::detail
