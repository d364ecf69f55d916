// Schedules of the planners for small steps with known results.
#include <gtest/gtest.h>

#include "csrc/schedule/planners.h"
#include "csrc/schedule/segments.h"
#include "tests/core/support/planned_peak.h"
#include "tests/core/support/schedule_step.h"

namespace recoup::detail {
namespace {

// `length` ops forward, of which the last is the loss; then one backward op for each except the
// loss.
TraceGraph chain(Step& step, int length, std::int64_t size = 100) {
  std::vector<std::uint32_t> made;
  for (int i = 0; i < length; ++i) {
    made.push_back(step.op(made.empty() ? made : std::vector{made.back()}, size));
  }
  std::uint32_t gradient = made.back();
  made.pop_back();
  while (!made.empty()) {
    const std::uint32_t next = step.op({made.back(), gradient}, 1);
    step.drop(made.back());
    step.drop(gradient);
    made.pop_back();
    gradient = next;
  }
  step.drop(gradient);
  return step.take();
}
TraceGraph chain(int length, std::int64_t size = 100) {
  Step step;
  return chain(step, length, size);
}

Schedule empty_schedule(const TraceGraph& graph) {
  return {.kept = std::vector<Intervals>(graph.values.size())};
}

TEST(Rounds, AStepHasOneRound) {
  const std::vector<Round> rounds = find_rounds(chain(5));  // ops 0-4 forward, 5-8 backward
  ASSERT_EQ(rounds.size(), 1U);
  EXPECT_EQ(rounds[0].begin, 0U);
  EXPECT_EQ(rounds[0].turn, 5U);  // the first backward op adds its byte
  EXPECT_EQ(rounds[0].end, 9U);
}

TEST(Rounds, EachMicroBatchHasARound) {
  Step step;
  const TraceGraph one = chain(4);
  for (int batch = 0; batch < 3; ++batch) {
    std::vector<std::uint32_t> made = {step.op({}, 100)};
    for (int i = 0; i < 3; ++i) {
      made.push_back(step.op({made.back()}, 100));
    }
    while (!made.empty()) {
      step.drop(step.op({made.back()}, 1));
      step.drop(made.back());
      made.pop_back();
    }
  }
  const std::vector<Round> rounds = find_rounds(step.take());  // 8 ops each
  ASSERT_EQ(rounds.size(), 3U);
  for (std::uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(rounds[i].turn, 8 * i + 4);
    EXPECT_GT(rounds[i].begin + 8, 8 * i);
    EXPECT_LE(rounds[i].end, 8 * i + 8);
  }
}

TEST(Rounds, WithoutRecomputableOpsThereIsNoRound) {
  GraphBuilder builder(Bytes(0));
  const std::vector<GraphBuilder::Fresh> fresh = {{.storage = 0, .size = Bytes(100)}};
  builder.add_op({}, {}, fresh, false);
  EXPECT_TRUE(find_rounds(builder.take()).empty());
  EXPECT_TRUE(find_rounds(TraceGraph()).empty());
}

TEST(Segments, AChainInTwoSegments) {
  const TraceGraph graph = chain(6);  // ops 0-5 forward, 6-10 backward: op 10 reads value 0
  const Round round = find_rounds(graph).at(0);
  ASSERT_EQ(round.turn, 6U);
  Segmentation plan{.bounds = {0, 3, 7}, .states = checkpoint_states(2)};
  Schedule schedule = empty_schedule(graph);
  add_segments(graph, round, plan, schedule);
  EXPECT_EQ(schedule.kept[0], (Intervals{{1, 2}, {9, kOpen}}));
  EXPECT_EQ(schedule.kept[1], (Intervals{{2, 3}, {9, kOpen}}));  // op 9 reads it first
  EXPECT_EQ(schedule.kept[2], (Intervals{{3, kOpen}}));          // the checkpoint
  EXPECT_EQ(schedule.kept[3], (Intervals{{4, kOpen}}));          // the last segment is kept
  EXPECT_TRUE(schedule.kept[7].empty());                         // made by the backward pass
  // At op 6: values 2 to 5, and the gradients of ops 5 and 6.
  EXPECT_EQ(planned_peak(graph, schedule), 401);
}

// big -> small -> last; the backward pass reads small.
TEST(PeakOfOps, IncludesTheBytesThatAReplayNeeds) {
  Step step;
  const std::uint32_t big = step.op({}, 1000);
  const std::uint32_t small = step.op({big}, 10);
  step.drop(big);
  const std::uint32_t last = step.op({small}, 10);
  step.drop(step.op({last}, 1));
  step.drop(step.op({small}, 1));  // op 4
  TraceGraph graph = step.take();
  Schedule schedule = empty_schedule(graph);
  schedule.kept[big] = {{1, 2}};
  schedule.kept[small] = {{2, 3}};
  EXPECT_EQ(planned_peak(graph, schedule), 1010);  // op 1
  schedule.kept[small] = {{2, 3}, {4, kOpen}};     // op 1 is replayed, and its input was dropped
  EXPECT_EQ(planned_peak(graph, schedule), 1021);
  schedule.kept[big] = {{1, 2}, {4, 5}};  // resident at that time
  EXPECT_EQ(planned_peak(graph, schedule), 1021);
  graph.ops[1].workspace = Bytes(500);
  EXPECT_EQ(planned_peak(graph, schedule), 1521);
  graph.ops[4].workspace = Bytes(600);  // after the replay, not at the same time
  EXPECT_EQ(planned_peak(graph, schedule), 1621);
  // Other ops, and values that are not listed.
  EXPECT_EQ(PeakOfOps(graph, schedule, 2, 4, {big, small}).peak(), 20);
  graph.ops[1].workspace = Bytes(5000);
  EXPECT_EQ(PeakOfOps(graph, schedule, 2, 5, {}).peak(), 1621);
  EXPECT_EQ(PeakOfOps(graph, schedule, 2, 5, {big, small}).peak(), 6021);
}

TEST(PeakOfOps, IncludesOtherResultsOfAReplay) {
  GraphBuilder builder(Bytes(0));
  const std::vector<GraphBuilder::Fresh> two = {{.storage = 0, .size = Bytes(300)},
                                                {.storage = 1, .size = Bytes(20)}};
  builder.add_op({.inputs = {}, .outputs = {}}, {}, two, true);
  for (std::uint32_t op = 1; op < 4; ++op) {
    const std::vector<TraceOperand> operands = {{.storage = 1, .reads = true}};
    const std::vector<GraphBuilder::Fresh> fresh = {{.storage = op + 1, .size = Bytes(1)}};
    builder.add_op({.inputs = {}, .outputs = {}}, operands, fresh, true);
    builder.end_storage(op + 1);
  }
  const TraceGraph graph = builder.take();
  Schedule schedule = empty_schedule(graph);
  schedule.kept[0] = {{1, 1}};
  schedule.kept[1] = {{1, 2}, {3, kOpen}};
  const std::vector<std::uint32_t> both = {0, 1};
  EXPECT_EQ(PeakOfOps(graph, schedule, 1, 4, both).peak(), 321);
  EXPECT_EQ(PeakOfOps(graph, schedule, 1, 3, both).peak(), 21);
}

TEST(Segments, SegmentsInSegments) {
  const TraceGraph graph = chain(8);  // ops 0-7, 8-14
  const Round round = find_rounds(graph).at(0);
  Segmentation plan{.bounds = {0, 2, 4, 6, 9}, .states = {}};
  plan.states.assign(4, {.bounds = std::vector<bool>(4), .whole = std::vector<bool>(4)});
  for (std::size_t c = 0; c < 4; ++c) {
    plan.states[c].whole[c] = true;
    plan.states[c].bounds[2] = c >= 2;
    plan.states[c].bounds[3] = c == 3;
    plan.states[c].bounds[1] = c == 1;
  }
  Schedule schedule = empty_schedule(graph);
  add_segments(graph, round, plan, schedule);
  // Value 3 crosses bound 4, value 5 bound 6, value 1 bound 2; the last only in the backward pass.
  EXPECT_EQ(schedule.kept[3], (Intervals{{4, kOpen}}));
  EXPECT_EQ(schedule.kept[5], (Intervals{{6, kOpen}}));
  EXPECT_EQ(schedule.kept[1], (Intervals{{2, 3}, {12, kOpen}}));
  EXPECT_EQ(schedule.kept[2], (Intervals{{3, 4}, {12, kOpen}}));
  EXPECT_EQ(schedule.kept[4], (Intervals{{5, 6}, {10, kOpen}}));
  EXPECT_EQ(schedule.kept[0], (Intervals{{1, 2}, {14, kOpen}}));
}

TEST(Segments, CutsAreMovedToNarrowPlaces) {
  Step step;
  // Every fourth value is narrow: only at a cut after a narrow one few bytes must be kept.
  std::vector<std::uint32_t> made = {step.op({}, 10)};
  for (int i = 1; i < 16; ++i) {
    made.push_back(step.op({made.back()}, i % 4 == 0 ? 10 : 1000));
  }
  while (!made.empty()) {
    step.drop(step.op({made.back()}, 1));
    step.drop(made.back());
    made.pop_back();
  }
  const TraceGraph graph = step.take();
  const ForwardPass forward(graph, find_rounds(graph).at(0));
  const std::vector<std::uint32_t> bounds = forward.cut_evenly(4);
  ASSERT_EQ(bounds.size(), 5U);
  for (std::size_t i = 1; i + 1 < bounds.size(); ++i) {
    EXPECT_EQ(forward.crossing(bounds[i]), 10) << bounds[i];
  }
}

TEST(Schedules, SqrtNNeedsTheRootOfTheMemory) {
  const TraceGraph graph = chain(100);
  const ScheduleInput input{.graph = graph, .names = {}, .budget = Bytes(0)};
  EXPECT_LE(planned_peak(graph, plan_schedule(ScheduleKind::kSqrtN, input)), 2300);
  EXPECT_LE(planned_peak(graph, plan_schedule(ScheduleKind::kRecursive, input)), 1500);
}

TEST(Schedules, BudgetedAndRotorKeepTheBudget) {
  const TraceGraph graph = chain(60);
  for (const std::int64_t budget : {6100, 4000, 3000, 2000}) {
    const ScheduleInput input{.graph = graph, .names = {}, .budget = Bytes(budget)};
    for (const ScheduleKind kind : {ScheduleKind::kBudgeted, ScheduleKind::kRotor}) {
      EXPECT_LE(planned_peak(graph, plan_schedule(kind, input)), budget);
    }
  }
  // With enough memory nothing is dropped before its last use.
  const ScheduleInput ample{.graph = graph, .names = {}, .budget = Bytes(10000)};
  for (const ScheduleKind kind : {ScheduleKind::kBudgeted, ScheduleKind::kRotor}) {
    for (const Intervals& kept : plan_schedule(kind, ample).kept) {
      EXPECT_LE(kept.size(), 1U);
    }
  }
}

}  // namespace
}  // namespace recoup::detail
