// One step of a small trace with a known result.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <stdexcept>

#include "csrc/trace/sink.h"
#include "csrc/trace/step.h"

namespace recoup::detail {
namespace {

using Kind = TraceEvent::Kind;

class TraceStepTest : public testing::Test {
 protected:
  void event(Kind kind, std::uint32_t index = 0, Bytes size = Bytes(0)) {
    builder_.add_event({.kind = kind, .index = index, .size = size});
  }
  // Reads `input` and makes 64 bytes.
  void op(std::uint32_t input) {
    const TraceOperand operand{.storage = input, .reads = true};
    const TraceFresh fresh{.allocation = 0, .nbytes = Bytes(64)};
    builder_.add_op(TraceOp(), std::span(&operand, 1), std::span(&fresh, 1));
  }
  void SetUp() override {
    const KernelStep allocates{.kind = KernelStep::Kind::kAllocate, .index = 0, .size = Bytes(64)};
    builder_.add_name("op");
    builder_.add_kernel(std::span(&allocates, 1));
    event(Kind::kExternal, 0, Bytes(100));  // s0
    op(0);                                  // s1
    op(1);                                  // s2
    event(Kind::kDie, 1);
    event(Kind::kPin, 2);
    event(Kind::kAllocate, 0, Bytes(32));  // b0
    event(Kind::kAllocate, 0, Bytes(48));  // b1
    event(Kind::kFree, 0);
    event(Kind::kStep);
    op(2);                                // s3
    event(Kind::kAdopt, 1, Bytes(48));    // s4
    event(Kind::kExternal, 0, Bytes(8));  // s5
    op(4);                                // s6
    event(Kind::kUnpin, 2);
    event(Kind::kDie, 3);
    event(Kind::kStep);
    op(6);
    event(Kind::kScopeExit);
  }
  TraceBuilder builder_;
};

TEST_F(TraceStepTest, LiveStoragesBecomeExternal) {
  const Trace step = step_of(builder_.trace(), 1);
  validate(step);
  const std::vector<TraceEvent> expected{
      {Kind::kExternal, 0, Bytes(100)},                                   // s0
      {Kind::kExternal, 0, Bytes(64)},                                    // s1, was s2
      {Kind::kPin, 1, Bytes(0)},        {Kind::kAllocate, 0, Bytes(48)},  // b0, was b1
      {Kind::kOp, 0, Bytes(0)},                                           // s2, was s3
      {Kind::kAdopt, 0, Bytes(48)},                                       // s3
      {Kind::kExternal, 0, Bytes(8)},                                     // s4
      {Kind::kOp, 1, Bytes(0)},                                           // s5
      {Kind::kUnpin, 1, Bytes(0)},      {Kind::kDie, 2, Bytes(0)},       {Kind::kStep, 0, Bytes(0)},
  };
  EXPECT_EQ(step.events, expected);
  ASSERT_EQ(step.ops.size(), 2U);
  EXPECT_EQ(step.operands_of(step.ops[0])[0].storage, 1U);
  EXPECT_EQ(step.operands_of(step.ops[1])[0].storage, 3U);
}

TEST_F(TraceStepTest, PartsBelongToTheStepInWhichTheyBegin) {
  const TracePart parts[] = {{.operand_count = 1}, {.operand_count = 2, .workspace = Bytes(8)}};
  const TracePartOperand operands[] = {{.storage = 2}, {.storage = 6, .written = true}, {2, true}};
  builder_.add_list_op({}, parts, operands);
  event(Kind::kStep);
  event(Kind::kPartsEnd);
  builder_.add_list_op({}, parts, operands);
  event(Kind::kPartsEnd);
  event(Kind::kStep);
  validate(builder_.trace());
  const Trace step = step_of(builder_.trace(), 3);
  validate(step);
  ASSERT_EQ(step.list_ops.size(), 1U);
  EXPECT_EQ(step.parts_of(step.list_ops[0])[1].workspace, Bytes(8));
  // s0, s2, s4, s5, s6 and the result of the last op are live.
  EXPECT_EQ(step.part_operands, (std::vector<TracePartOperand>{{1}, {4, true}, {1, true}}));
  EXPECT_EQ(step.events[step.events.size() - 2].kind, Kind::kPartsEnd);
  EXPECT_EQ(step.events[step.events.size() - 3].kind, Kind::kParts);
  validate(step_of(builder_.trace(), 2));
}

TEST_F(TraceStepTest, TheEndOfAnEarlierEscapeIsLeftOut) {
  event(Kind::kEscape, 6);
  event(Kind::kStep);
  event(Kind::kEscapeEnd, 6);
  event(Kind::kEscape, 2);
  event(Kind::kEscapeEnd, 2);
  event(Kind::kStep);
  validate(builder_.trace());
  const Trace step = step_of(builder_.trace(), 3);
  validate(step);
  const TraceEvent last[] = {{Kind::kEscape, 1}, {Kind::kEscapeEnd, 1}, {Kind::kStep, 0}};
  EXPECT_TRUE(std::equal(std::begin(last), std::end(last), step.events.end() - 3));
}

TEST_F(TraceStepTest, TheFirstEventsHaveNoPlans) {
  builder_.add_plan({}, {});
  op(2);
  const Trace& whole = builder_.trace();
  EXPECT_EQ(first_events(whole, 9), step_of(whole, 0));
  for (std::size_t count = 0; count <= whole.events.size(); ++count) {
    validate(first_events(whole, count));
  }
  const Trace all = first_events(whole, whole.events.size() + 1);
  EXPECT_EQ(all.events.size(), whole.events.size() - 1);
  EXPECT_EQ(all.ops, whole.ops);
  EXPECT_TRUE(all.plans.empty());
}

TEST_F(TraceStepTest, TheFirstStepIsTheStart) {
  const Trace step = step_of(builder_.trace(), 0);
  validate(step);
  const std::vector<TraceEvent>& all = builder_.trace().events;
  EXPECT_EQ(step.events, std::vector<TraceEvent>(all.begin(), all.begin() + 9));
  EXPECT_THROW((void)step_of(builder_.trace(), 2), std::invalid_argument);
}

}  // namespace
}  // namespace recoup::detail
