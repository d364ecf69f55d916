// Schedules of the planners that use kinds of ops, for small steps with known results.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "csrc/schedule/op_kinds.h"
#include "csrc/schedule/planners.h"
#include "tests/core/support/schedule_step.h"

namespace recoup::detail {
namespace {

// mm -> a (cheap) -> b (cheap) -> mm -> c (cheap). The backward pass reads all but the first mm's
// result.
class ByKind : public testing::Test {
 protected:
  ByKind() {
    first_ = step_.op({}, 100, true);  // op 0
    a_ = step_.op({first_}, 100);      // op 1
    step_.drop(first_);
    b_ = step_.op({a_}, 100);                    // op 2
    second_ = step_.op({b_}, 100, true);         // op 3
    c_ = step_.op({second_}, 100);               // op 4
    std::uint32_t gradient = step_.op({c_}, 1);  // op 5: the turn to the backward pass
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
  EXPECT_EQ(schedule.kept[first_], (Intervals{{1, 9}}));  // until op 8 has recomputed a and b
  EXPECT_EQ(schedule.kept[a_], (Intervals{{2, 3}, {8, kOpen}}));  // to compute b
  EXPECT_EQ(schedule.kept[b_], (Intervals{{3, 4}, {8, kOpen}}));
  EXPECT_TRUE(schedule.kept[second_].empty());        // the program holds it
  EXPECT_EQ(schedule.kept[c_], (Intervals{{5, 7}}));  // last used by op 6, at the peak
}

TEST_F(ByKind, Superneurons) {
  const Schedule speed = plan(ScheduleKind::kSuperneuronsSpeed);
  EXPECT_EQ(speed.kept[a_], (Intervals{{2, 3}, {8, kOpen}}));
  EXPECT_EQ(speed.kept[b_], (Intervals{{3, 4}, {8, kOpen}}));
  const Schedule memory = plan(ScheduleKind::kSuperneuronsMemory);
  EXPECT_EQ(memory.kept[a_], (Intervals{{2, 3}}));
  EXPECT_EQ(memory.kept[b_], (Intervals{{3, 4}}));
  EXPECT_EQ(memory.kept[first_], (Intervals{{1, 10}}));  // op 9 recomputes a from it
}

TEST(ByKindRules, JoinsAndOverwrittenCheckpointsAreKept) {
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
  EXPECT_LE(schedule.kept[graph.ops[4].outputs[0]].size(), 1U);  // never dropped and restored
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

}  // namespace
}  // namespace recoup::detail
