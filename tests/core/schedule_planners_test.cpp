// What the planners of schedules say of steps that are known by heart, and of random ones beside
// something too simple to be wrong.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "csrc/schedule/op_kinds.h"
#include "csrc/schedule/planners.h"
#include "csrc/schedule/rotor.h"
#include "tests/core/planned_peak.h"

namespace recoup::detail {
namespace {

constexpr std::uint32_t kOpen = Interval::kOpen;
using Intervals = std::vector<Interval>;

// A step, op by op. Names are "cheap" (0) and "aten::mm" (1).
class Step {
 public:
  // Returns what it made.
  std::uint32_t op(const std::vector<std::uint32_t>& inputs, std::int64_t size, bool heavy = false,
                   std::int64_t cost = 10) {
    std::vector<TraceOperand> operands;
    for (const std::uint32_t input : inputs) {
      operands.push_back({.storage = input, .reads = true});
    }
    const std::vector<GraphBuilder::Fresh> fresh = {{.storage = storages_, .size = Bytes(size)}};
    builder_.add_op(
        {.name = heavy ? 1U : 0U, .cost = Nanoseconds(cost), .inputs = {}, .outputs = {}}, operands,
        fresh, true);
    return storages_++;
  }
  void update(std::uint32_t storage) {
    const std::vector<TraceOperand> operands = {
        {.storage = storage, .reads = true, .written = true}};
    builder_.add_op({.name = 0, .cost = Nanoseconds(10), .inputs = {}, .outputs = {}}, operands, {},
                    true);
  }
  void drop(std::uint32_t storage) { builder_.end_storage(storage); }
  TraceGraph take() { return builder_.take(); }

 private:
  GraphBuilder builder_{Bytes(0)};
  std::uint32_t storages_ = 0;
};

// `length` ops forward, the last of them the loss; then one back for each but the loss.
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

TEST(Rounds, OneStepHasOne) {
  const std::vector<Round> rounds = find_rounds(chain(5));  // ops 0-4 forward, 5-8 back
  ASSERT_EQ(rounds.size(), 1U);
  EXPECT_EQ(rounds[0].begin, 0U);
  EXPECT_EQ(rounds[0].turn, 5U);  // the first op back adds its byte
  EXPECT_EQ(rounds[0].end, 9U);
}

TEST(Rounds, EachMicroBatchHasItsOwn) {
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

TEST(Rounds, NothingToRecomputeIsNone) {
  GraphBuilder builder(Bytes(0));
  const std::vector<GraphBuilder::Fresh> fresh = {{.storage = 0, .size = Bytes(100)}};
  builder.add_op({}, {}, fresh, false);
  EXPECT_TRUE(find_rounds(builder.take()).empty());
  EXPECT_TRUE(find_rounds(TraceGraph()).empty());
}

TEST(Segments, TwoOfAChain) {
  const TraceGraph graph = chain(6);  // ops 0-5 forward, 6-10 back: op 10 reads value 0
  const Round round = find_rounds(graph).at(0);
  ASSERT_EQ(round.turn, 6U);
  SegmentPlan plan{.bounds = {0, 3, 7}, .states = checkpoint_states(2)};
  Schedule schedule = empty_schedule(graph);
  add_segments(graph, round, plan, schedule);
  EXPECT_EQ(schedule.kept[0], (Intervals{{1, 2}, {9, kOpen}}));
  EXPECT_EQ(schedule.kept[1], (Intervals{{2, 3}, {9, kOpen}}));  // op 9 reads it first
  EXPECT_EQ(schedule.kept[2], (Intervals{{3, kOpen}}));          // the checkpoint
  EXPECT_EQ(schedule.kept[3], (Intervals{{4, kOpen}}));          // the last segment stays
  EXPECT_TRUE(schedule.kept[7].empty());                         // made by the backward pass
  // At op 6: values 2 to 5, the gradients of ops 5 and 6.
  EXPECT_EQ(planned_peak(graph, schedule), 401);
}

// big -> small, which is read on the way back -> last.
TEST(PeakOfOps, WhatAReplayHoldsBesideCounts) {
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
  schedule.kept[small] = {{2, 3}, {4, kOpen}};     // op 1 runs again, and reads what was dropped
  EXPECT_EQ(planned_peak(graph, schedule), 1021);
  schedule.kept[big] = {{1, 2}, {4, 5}};  // has its bytes then
  EXPECT_EQ(planned_peak(graph, schedule), 1021);
  graph.ops[1].workspace = Bytes(500);
  EXPECT_EQ(planned_peak(graph, schedule), 1521);
  graph.ops[4].workspace = Bytes(600);  // behind the replay, not beside it
  EXPECT_EQ(planned_peak(graph, schedule), 1621);
  // Other ops, and what is not asked for.
  EXPECT_EQ(PeakOfOps(graph, schedule, 2, 4, {big, small}).peak(), 20);
  graph.ops[1].workspace = Bytes(5000);
  EXPECT_EQ(PeakOfOps(graph, schedule, 2, 5, {}).peak(), 1621);
  EXPECT_EQ(PeakOfOps(graph, schedule, 2, 5, {big, small}).peak(), 6021);
}

TEST(PeakOfOps, OtherResultsOfAReplayCount) {
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
  SegmentPlan plan{.bounds = {0, 2, 4, 6, 9}, .states = {}};
  plan.states.assign(4, {.bounds = std::vector<bool>(4), .whole = std::vector<bool>(4)});
  for (std::size_t c = 0; c < 4; ++c) {
    plan.states[c].whole[c] = true;
    plan.states[c].bounds[2] = c >= 2;
    plan.states[c].bounds[3] = c == 3;
    plan.states[c].bounds[1] = c == 1;
  }
  Schedule schedule = empty_schedule(graph);
  add_segments(graph, round, plan, schedule);
  // Value 3 crosses bound 4, value 5 bound 6, value 1 bound 2, the last one only on the way back.
  EXPECT_EQ(schedule.kept[3], (Intervals{{4, kOpen}}));
  EXPECT_EQ(schedule.kept[5], (Intervals{{6, kOpen}}));
  EXPECT_EQ(schedule.kept[1], (Intervals{{2, 3}, {12, kOpen}}));
  EXPECT_EQ(schedule.kept[2], (Intervals{{3, 4}, {12, kOpen}}));
  EXPECT_EQ(schedule.kept[4], (Intervals{{5, 6}, {10, kOpen}}));
  EXPECT_EQ(schedule.kept[0], (Intervals{{1, 2}, {14, kOpen}}));
}

TEST(Segments, CutsAreMovedToThinPlaces) {
  Step step;
  // Wide, narrow, wide, narrow ...: only behind a narrow one is there little to keep.
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

TEST(Schedules, SqrtNTakesTheRootOfTheMemory) {
  const TraceGraph graph = chain(100);
  const ScheduleInput input{.graph = graph, .names = {}, .budget = Bytes(0)};
  EXPECT_LE(planned_peak(graph, plan_schedule(ScheduleKind::kSqrtN, input)), 2300);
  EXPECT_LE(planned_peak(graph, plan_schedule(ScheduleKind::kRecursive, input)), 1500);
}

TEST(Schedules, BudgetedAndRotorKeepToTheBudget) {
  const TraceGraph graph = chain(60);
  for (const std::int64_t budget : {6100, 4000, 3000, 2000}) {
    const ScheduleInput input{.graph = graph, .names = {}, .budget = Bytes(budget)};
    for (const ScheduleKind kind : {ScheduleKind::kBudgeted, ScheduleKind::kRotor}) {
      EXPECT_LE(planned_peak(graph, plan_schedule(kind, input)), budget);
    }
  }
  // All of it fits: nothing is dropped before its last use.
  const ScheduleInput ample{.graph = graph, .names = {}, .budget = Bytes(10000)};
  for (const ScheduleKind kind : {ScheduleKind::kBudgeted, ScheduleKind::kRotor}) {
    for (const Intervals& kept : plan_schedule(kind, ample).kept) {
      EXPECT_LE(kept.size(), 1U);
    }
  }
}

// mm -> a (cheap) -> b (cheap) -> mm -> c (cheap), all read on the way back but the first mm's.
class ByKind : public testing::Test {
 protected:
  ByKind() {
    first_ = step_.op({}, 100, true);  // op 0
    a_ = step_.op({first_}, 100);      // op 1
    step_.drop(first_);
    b_ = step_.op({a_}, 100);                                  // op 2
    second_ = step_.op({b_}, 100, true);                       // op 3
    c_ = step_.op({second_}, 100);                             // op 4
    std::uint32_t gradient = step_.op({c_}, 1);                // op 5: the turn
    for (const std::uint32_t saved : {c_, second_, b_, a_}) {  // ops 6-9
      const std::uint32_t next = step_.op({saved, gradient}, 1);
      step_.drop(saved);
      step_.drop(gradient);
      gradient = next;
    }
    step_.drop(gradient);
    graph_ = step_.take();
  }
  Schedule plan(ScheduleKind kind) {
    return plan_schedule(kind, {.graph = graph_, .names = names_, .budget = Bytes(0)});
  }
  std::vector<std::string> names_ = {"cheap", "aten::mm"};
  Step step_;
  TraceGraph graph_;
  std::uint32_t first_, a_, b_, second_, c_;
};

TEST_F(ByKind, Mirror) {
  const Schedule schedule = plan(ScheduleKind::kMirror);
  EXPECT_EQ(schedule.kept[first_], (Intervals{{1, 9}}));  // until op 8 has made a and b again
  EXPECT_EQ(schedule.kept[a_], (Intervals{{2, 3}, {8, kOpen}}));  // to make b
  EXPECT_EQ(schedule.kept[b_], (Intervals{{3, 4}, {8, kOpen}}));
  EXPECT_TRUE(schedule.kept[second_].empty());        // the program holds it
  EXPECT_EQ(schedule.kept[c_], (Intervals{{5, 7}}));  // op 6, where most is live, needs it last
}

TEST_F(ByKind, Superneurons) {
  const Schedule speed = plan(ScheduleKind::kSuperneuronsSpeed);
  EXPECT_EQ(speed.kept[a_], (Intervals{{2, 3}, {8, kOpen}}));
  EXPECT_EQ(speed.kept[b_], (Intervals{{3, 4}, {8, kOpen}}));
  const Schedule memory = plan(ScheduleKind::kSuperneuronsMemory);
  EXPECT_EQ(memory.kept[a_], (Intervals{{2, 3}}));
  EXPECT_EQ(memory.kept[b_], (Intervals{{3, 4}}));
  EXPECT_EQ(memory.kept[first_], (Intervals{{1, 10}}));  // op 9 makes a from it once more
}

TEST(ByKindRules, JoinsAndWhatIsWrittenOverACheckpointStay) {
  Step step;
  const std::uint32_t x = step.op({}, 100, true);
  const std::uint32_t y = step.op({x}, 100);
  const std::uint32_t joined = step.op({x, y}, 100);
  const std::uint32_t heavy = step.op({joined}, 100, true);
  step.update(heavy);
  std::uint32_t gradient = step.op({heavy}, 1);
  for (const std::uint32_t saved : {heavy, joined, y, x}) {
    gradient = step.op({saved, gradient}, 1);
    step.drop(saved);
  }
  const TraceGraph graph = step.take();
  const std::vector<std::string> names = {"cheap", "aten::mm"};
  const Schedule schedule = plan_schedule(ScheduleKind::kMirror, {graph, names, Bytes(0)});
  EXPECT_EQ(schedule.kept[y].size(), 2U);
  EXPECT_TRUE(schedule.kept[joined].empty());
  EXPECT_LE(schedule.kept[graph.ops[4].outputs[0]].size(), 1U);  // never dropped and got back
}

TEST(OpKinds, ByName) {
  for (const char* heavy :
       {"aten::mm", "aten::addmm.out", "aten::convolution", "matmul", "cudnn_convolution_backward",
        "aten::_scaled_dot_product_attention", "aten::baddbmm_", "aten::mkldnn_rnn_layer"}) {
    EXPECT_TRUE(is_compute_heavy(heavy)) << heavy;
  }
  for (const char* cheap : {"aten::add.Tensor", "aten::native_batch_norm", "aten::relu_",
                            "aten::max_pool2d_with_indices", "aten::sum.dim_IntList", "aten::mul",
                            "aten::native_dropout", "aten::clamp_min", ""}) {
    EXPECT_FALSE(is_compute_heavy(cheap)) << cheap;
  }
}

// ---- the optimal schedule of a chain, beside a search through all persistent ones ----

class BruteForce {
 public:
  BruteForce(const std::vector<ChainStage>& stages, std::int64_t memory)
      : stages_(stages), memory_(memory) {}

  // The least cost of forward passes; negative when nothing fits.
  std::int64_t cost() { return back(static_cast<int>(stages_.size()) - 1, {}, {}); }

 private:
  using Kept = std::vector<bool>;

  [[nodiscard]] std::int64_t bytes(const Kept& inputs, const Kept& whole) const {
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < stages_.size(); ++i) {
      sum += (inputs[i] ? stages_[i].input : 0) + (whole[i] ? stages_[i].saved : 0);
    }
    return sum;
  }

  // Goes back through `stage` and all before it; what is kept for later stages is gone.
  std::int64_t back(int stage, Kept inputs, Kept whole) {
    inputs.resize(stages_.size());
    whole.resize(stages_.size());
    if (stage < 0) {
      return 0;
    }
    const auto at = static_cast<std::size_t>(stage);
    for (std::size_t i = at + 1; i < stages_.size(); ++i) {
      inputs[i] = whole[i] = false;
    }
    const auto key = std::tuple(stage, inputs, whole);
    if (const auto found = known_.find(key); found != known_.end()) {
      return found->second;
    }
    std::int64_t best = -1;
    // A backward pass reads what its stage saved, and the stage's input.
    if (whole[at] && (at == 0 || inputs[at] || whole[at - 1])) {
      best = back(stage - 1, inputs, whole);
    } else {
      // From any place whose input is there.
      for (std::size_t from = 0; from <= at; ++from) {
        if (from == 0 || inputs[from] || whole[from - 1]) {
          forward(from, at, 0, inputs, whole, best);
        }
      }
    }
    return known_[key] = best;
  }

  void forward(std::size_t next, std::size_t to, std::int64_t cost, const Kept& inputs,
               const Kept& whole, std::int64_t& best) {
    cost += stages_[next].cost;
    for (const bool keeps_input : {false, true}) {
      for (const bool keeps_whole : {false, true}) {
        Kept more_inputs = inputs;
        Kept more_whole = whole;
        more_inputs[next] = more_inputs[next] || (keeps_input && next > 0);
        more_whole[next] = more_whole[next] || keeps_whole;
        // What a stage saves is saved beside its input (F_all of the paper keeps both).
        const bool has_input = next == 0 || more_inputs[next] || more_whole[next - 1];
        if (bytes(more_inputs, more_whole) > memory_ || (keeps_whole && !has_input)) {
          continue;
        }
        if (next < to) {
          forward(next + 1, to, cost, more_inputs, more_whole, best);
          continue;
        }
        const bool ready = more_whole[to] && (to == 0 || more_inputs[to] || more_whole[to - 1]);
        const std::int64_t rest =
            ready ? back(static_cast<int>(to), more_inputs, more_whole) : std::int64_t{-1};
        if (rest >= 0 && (best < 0 || cost + rest < best)) {
          best = cost + rest;
        }
      }
    }
  }

  const std::vector<ChainStage>& stages_;
  std::int64_t memory_;
  std::map<std::tuple<int, Kept, Kept>, std::int64_t> known_;
};

TEST(Rotor, EqualsBruteForce) {
  std::mt19937_64 random(7);
  int feasible = 0;
  int replayed = 0;
  for (int instance = 0; instance < 300; ++instance) {
    std::vector<ChainStage> stages(1 + random() % 5);
    std::int64_t all = 0;
    for (ChainStage& stage : stages) {
      stage.cost = static_cast<std::int64_t>(1 + random() % 9);
      stage.input = static_cast<std::int64_t>(1 + random() % 4);
      stage.saved = stage.input + static_cast<std::int64_t>(random() % 6);
      all += stage.cost;
    }
    const auto memory = static_cast<std::int64_t>(1 + random() % 20);
    const auto schedule = optimal_chain(stages, memory, static_cast<int>(memory));
    const std::int64_t expected = BruteForce(stages, memory).cost();
    ASSERT_EQ(schedule ? schedule->cost : -1, expected) << "instance " << instance;
    feasible += schedule ? 1 : 0;
    replayed += schedule && schedule->cost > all ? 1 : 0;
  }
  EXPECT_GT(feasible, 150);
  EXPECT_GT(replayed, 50);
}

TEST(Rotor, WhatItKeepsFits) {
  std::mt19937_64 random(11);
  for (int instance = 0; instance < 200; ++instance) {
    std::vector<ChainStage> stages(2 + random() % 20);
    for (ChainStage& stage : stages) {
      stage.cost = static_cast<std::int64_t>(1 + random() % 100);
      stage.input = static_cast<std::int64_t>(1 + random() % 50);
      stage.saved = static_cast<std::int64_t>(1 + random() % 200);
    }
    const auto memory = static_cast<std::int64_t>(300 + random() % 1000);
    const auto schedule = optimal_chain(stages, memory);
    if (!schedule) {
      continue;
    }
    for (std::size_t c = 0; c < stages.size(); ++c) {
      const ChainState& state = schedule->states[c];
      std::int64_t bytes = 0;
      for (std::size_t s = 0; s < stages.size(); ++s) {
        bytes += (state.inputs[s] ? stages[s].input : 0) + (state.whole[s] ? stages[s].saved : 0);
        EXPECT_FALSE((state.inputs[s] || state.whole[s]) && s > c);
      }
      EXPECT_TRUE(state.whole[c]);
      EXPECT_LE(bytes, memory);
    }
  }
}

}  // namespace
}  // namespace recoup::detail
