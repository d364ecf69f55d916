// The graph of a small trace with a known result.
#include <gtest/gtest.h>

#include "csrc/trace/graph.h"

namespace recoup::detail {
namespace {

using Kind = TraceEvent::Kind;

class TraceGraphTest : public testing::Test {
 protected:
  struct Use {
    std::uint32_t storage;
    bool written = false;
    bool overwritten = false;
    bool left_out = false;
  };
  void event(Kind kind, std::uint32_t index = 0, Bytes size = Bytes(0)) {
    trace_.events.push_back({kind, index, size});
  }
  // Storages that are not written, or only in part, are read.
  void op(const std::vector<Use>& uses, const std::vector<Bytes>& fresh) {
    TraceOp op{.first_operand = static_cast<std::uint32_t>(trace_.operands.size()),
               .operand_count = static_cast<std::uint32_t>(uses.size()),
               .first_fresh = static_cast<std::uint32_t>(trace_.fresh.size()),
               .fresh_count = static_cast<std::uint32_t>(fresh.size())};
    op.kernel = static_cast<std::uint32_t>(trace_.kernels.size());
    trace_.kernels.emplace_back();
    for (const Use& use : uses) {
      trace_.operands.push_back({.storage = use.storage,
                                 .reads = !use.overwritten && !use.left_out,
                                 .written = use.written || use.overwritten || use.left_out,
                                 .overwritten = use.overwritten,
                                 .left_out = use.left_out});
    }
    for (const Bytes size : fresh) {
      trace_.fresh.push_back({static_cast<std::uint32_t>(trace_.kernels.back().size()), size});
      trace_.kernels.back().push_back({KernelStep::Kind::kAllocate, 0, size});
    }
    event(Kind::kOp, static_cast<std::uint32_t>(trace_.ops.size()));
    trace_.ops.push_back(op);
  }
  TraceGraph graph() {
    trace_.names = {"op"};
    validate(trace_);
    return build_graph(trace_, Bytes(8));
  }
  Trace trace_;
};

TEST_F(TraceGraphTest, FollowsValuesThroughWritesAndDeaths) {
  event(Kind::kExternal, 0, Bytes(100));  // s0, v0
  op({{0}}, {Bytes(64)});                 // op 0: s1, v1
  op({{1}}, {Bytes(64), Bytes(8)});       // op 1: s2, v2 and s3, v3 (small)
  op({{1}, {2, true}}, {});               // op 2 writes s2: v4
  event(Kind::kDie, 1);
  op({{2, false, true}}, {});  // op 3 overwrites s2: v5
  op({{0, true}}, {});         // op 4 writes the external: v6
  event(Kind::kStep);
  op({{0}, {3, false, false, true}}, {Bytes(32)});  // op 5: s4, v7; s3 in passing, v8
  event(Kind::kScopeExit);
  event(Kind::kDie, 2);
  const TraceGraph found = graph();

  ASSERT_EQ(found.values.size(), 9U);
  EXPECT_EQ(found.step_ends, std::vector<std::uint32_t>{5});
  const auto value = [&](std::size_t i) -> const GraphValue& { return found.values[i]; };
  EXPECT_TRUE(value(0).external);
  EXPECT_EQ(value(0).producer, GraphValue::kNone);
  EXPECT_EQ(value(0).readers, (std::vector<std::uint32_t>{0, 4}));
  EXPECT_EQ(value(0).dies, 4U);
  EXPECT_EQ(value(1).producer, 0U);
  EXPECT_TRUE(value(1).recomputable);
  EXPECT_EQ(value(1).readers, (std::vector<std::uint32_t>{1, 2}));
  EXPECT_EQ(value(1).dies, 3U);
  EXPECT_EQ(value(2).dies, 2U);
  EXPECT_FALSE(value(3).recomputable);  // small
  EXPECT_EQ(value(4).producer, 2U);
  EXPECT_EQ(value(4).storage, 2U);
  EXPECT_TRUE(value(4).recomputable);
  EXPECT_TRUE(value(4).readers.empty());  // op 3 does not need it
  EXPECT_EQ(value(5).dies, 6U);
  EXPECT_FALSE(value(6).recomputable);
  EXPECT_TRUE(value(6).external);
  EXPECT_EQ(found.ops[5].outputs, (std::vector<std::uint32_t>{7, 8}));
  EXPECT_EQ(found.ops[5].inputs, std::vector<std::uint32_t>{6});
  EXPECT_FALSE(value(8).recomputable);
  EXPECT_EQ(found.at_exit, (std::vector<std::uint32_t>{6, 5, 8, 7}));
}

TEST_F(TraceGraphTest, EscapedAndPinnedValuesAreKept) {
  event(Kind::kAllocate, 0, Bytes(64));
  event(Kind::kAdopt, 0, Bytes(64));
  op({{0}}, {Bytes(64)});
  event(Kind::kEscape, 1);
  op({{1}}, {Bytes(64)});  // reads an escaped storage: not recordable
  event(Kind::kPin, 2);
  op({{2}}, {Bytes(64)});  // values computed from a pinned one are recomputable
  const TraceGraph found = graph();
  EXPECT_FALSE(found.values[0].recomputable);
  EXPECT_TRUE(found.values[1].kept);
  EXPECT_FALSE(found.values[2].recomputable);
  EXPECT_TRUE(found.values[2].kept);
  EXPECT_EQ(found.values[2].dies, 3U);
}

}  // namespace
}  // namespace recoup::detail
