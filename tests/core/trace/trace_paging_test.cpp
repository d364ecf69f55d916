// Simulations of ops whose memory may be paged: which allocations are paged, and what that costs.
#include <gtest/gtest.h>

#include "csrc/trace/sink.h"
#include "recoup/offline/traces.h"

namespace recoup::detail {
namespace {

// Ops of one operand each: an op makes `result` bytes with a workspace of `workspace` bytes, which
// it allocates first, and reads or writes the previous result.
class PagedProgram {
 public:
  PagedProgram() {
    builder_.add_name("op");
    builder_.add_event({.kind = Event::kExternal, .index = 0, .size = 64_B});
  }

  // Number of the result.
  std::uint32_t op(Bytes workspace, Bytes result, bool writes = false, bool may_overflow = true) {
    std::vector<KernelStep> steps;
    for (const Bytes size : {workspace, result}) {
      if (size > Bytes(0)) {
        steps.push_back({.kind = KernelStep::Kind::kAllocate, .index = 0, .size = size});
      }
    }
    const std::uint32_t at = workspace > Bytes(0) ? 1 : 0;
    if (at > 0) {
      steps.push_back({.kind = KernelStep::Kind::kFree, .index = 0, .size = Bytes(0)});
    }
    builder_.add_kernel(steps);
    TraceOp op;
    op.kernel = kernels_++;
    op.cost = Nanoseconds(1000);
    op.workspace = workspace;
    op.may_overflow = may_overflow;
    op.once = writes;
    TraceOperand operand;
    operand.storage = last_;
    operand.reads = true;
    operand.written = writes;
    const TraceFresh fresh{.allocation = at, .nbytes = result};
    builder_.add_op(op, {&operand, 1}, {&fresh, result > Bytes(0) ? 1U : 0U});
    if (result > Bytes(0)) {
      last_ = ++storages_;
    }
    return last_;
  }
  void die(std::uint32_t storage) {
    builder_.add_event({.kind = Event::kDie, .index = storage, .size = Bytes(0)});
  }
  void disown(std::uint32_t storage) {
    builder_.add_event({.kind = Event::kDisown, .index = storage, .size = Bytes(0)});
  }
  void begin_after_a_scope_with(Bytes window) {
    builder_.set_device({.window = window});
    builder_.add_event({.kind = Event::kExternal, .index = 1, .size = 32_MiB});
    ++storages_;
  }
  SimulationResult run(Bytes budget, Bytes window, bool everything = false) {
    SimulationOptions options;
    options.engine.budget = budget;
    options.engine.page_window = window;
    options.engine.aids.page = everything;
    return simulate(builder_.trace(), options);
  }

 private:
  using Event = TraceEvent::Kind;

  TraceBuilder builder_;
  std::uint32_t kernels_ = 0;
  std::uint32_t storages_ = 0;
  std::uint32_t last_ = 0;
};

using Status = SimulationResult::Status;

TEST(Paging, AResultThatDoesNotFit) {
  PagedProgram program;
  const std::uint32_t large = program.op(0_B, 8_MiB);
  program.op(0_B, 2_MiB);
  EXPECT_EQ(program.run(4_MiB, 0_B).status, Status::kOutOfBudget);
  const SimulationResult paged = program.run(4_MiB, 1_MiB);
  EXPECT_EQ(paged.status, Status::kOk);
  EXPECT_EQ(paged.stats.paged_allocations, 1);
  EXPECT_EQ(paged.stats.paged_bytes, (8_MiB).count());
  EXPECT_EQ(paged.stats.external_bytes, (1_MiB).count() + 64);
  EXPECT_EQ(paged.stats.peak_bytes, (3_MiB).count() + 64);
  EXPECT_EQ(program.run(16_MiB, 1_MiB).stats.paged_allocations, 0);
  program.die(large);
  EXPECT_EQ(program.run(4_MiB, 1_MiB).stats.external_bytes, (1_MiB).count() + 64);
}

TEST(Paging, AnOpThatMayNotBePagedAndAWindowThatDoesNotFit) {
  PagedProgram program;
  program.op(0_B, 8_MiB, false, /*may_overflow=*/false);
  EXPECT_EQ(program.run(4_MiB, 1_MiB).status, Status::kOutOfBudget);
  PagedProgram other;
  other.op(0_B, 8_MiB);
  EXPECT_EQ(other.run(4_MiB, 4_MiB).status, Status::kOutOfBudget);
  PagedProgram small;
  small.op(0_B, 1000_KiB);  // less than Paging::kLeast
  EXPECT_EQ(small.run(500_KiB, 100_KiB).status, Status::kOutOfBudget);
}

// The first run pages what did not fit: 8 MiB. Then 3 MiB do not fit next to the window.
TEST(Paging, SmallerMemoryIsPagedNext) {
  PagedProgram program;
  program.op(8_MiB, 3_MiB);
  const SimulationResult paged = program.run(4_MiB, 2_MiB);
  EXPECT_EQ(paged.status, Status::kOk);
  EXPECT_EQ(paged.stats.paged_allocations, 3);  // one of the run that did not fit
  EXPECT_EQ(paged.stats.paged_bytes, (19_MiB).count());
}

// An op that writes does not run twice: its memory is paged at once, where it does not fit.
TEST(Paging, AnOpThatWrites) {
  PagedProgram program;
  program.op(2_MiB, 0_B, /*writes=*/true);
  program.op(8_MiB, 2_MiB, /*writes=*/true);
  const SimulationResult paged = program.run(4_MiB, 1_MiB);
  EXPECT_EQ(paged.status, Status::kOk);
  EXPECT_EQ(paged.stats.paged_allocations, 1);
  EXPECT_EQ(program.run(4_MiB, 0_B).status, Status::kOutOfBudget);
}

// Without paging, too, its kernel runs only once: it may have written half of the operand.
TEST(Paging, AnOpThatWritesFailsAtOnce) {
  PagedProgram program;
  const std::uint32_t first = program.op(0_B, 1_MiB);
  program.op(0_B, 1_MiB);
  program.die(first);  // leaves a hole before the second block
  program.op(0_B, 1_MiB + 512_KiB);
  EXPECT_EQ(program.run(3_MiB, 0_B).status, Status::kOk);  // compacts memory, and runs again
  PagedProgram writing;
  const std::uint32_t second = writing.op(0_B, 1_MiB);
  writing.op(0_B, 1_MiB);
  writing.die(second);
  writing.op(0_B, 1_MiB + 512_KiB, /*writes=*/true);
  EXPECT_EQ(writing.run(3_MiB, 0_B).status, Status::kOutOfBudget);
}

// A tensor that an earlier scope paged is met: its window is charged, and then this run's own one
// in its place.
TEST(Paging, TheWindowOfAnEarlierScope) {
  PagedProgram program;
  program.begin_after_a_scope_with(3_MiB);
  program.op(0_B, 1_MiB);
  const SimulationResult fits = program.run(8_MiB, 1_MiB);
  EXPECT_EQ(fits.status, Status::kOk);
  EXPECT_EQ(fits.stats.peak_bytes, (4_MiB).count() + 64);
  program.op(0_B, 16_MiB);
  for (const Bytes window : {1_MiB, 4_MiB}) {
    const SimulationResult paged = program.run(6_MiB, window);
    EXPECT_EQ(paged.status, Status::kOk);
    EXPECT_EQ(paged.stats.external_bytes, window.count() + 64);
    EXPECT_LE(paged.stats.peak_bytes, (5_MiB).count() + 64);  // never both windows
  }
}

TEST(Paging, Everything) {
  PagedProgram program;
  const std::uint32_t first = program.op(100_B, 200_B);
  program.op(0_B, 1_KiB);
  program.disown(first);
  const SimulationResult paged = program.run(4_MiB, 1_MiB, true);
  EXPECT_EQ(paged.status, Status::kOk);
  EXPECT_EQ(paged.stats.paged_allocations, 3);
  EXPECT_EQ(paged.stats.peak_bytes, (1_MiB).count() + 64);
  // Not paged, the storage dies where its memory was replaced.
  const SimulationResult fits = program.run(4_MiB, 1_MiB);
  EXPECT_EQ(fits.status, Status::kOk);
  EXPECT_EQ(fits.stats.paged_allocations, 0);
}

}  // namespace
}  // namespace recoup::detail
