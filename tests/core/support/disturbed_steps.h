// Training steps with all disturbances that a program can cause in addition to its ops.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <new>
#include <random>
#include <vector>

#include "tests/core/support/step_program.h"

namespace recoup::detail {

// Also draws options of every kind.
class DisturbedSteps {
 public:
  explicit DisturbedSteps(std::uint64_t seed) : random_(seed) {}

  Bytes budget() {
    return chance(30) ? 1_MiB : Bytes(static_cast<std::int64_t>(1500 + random_() % 2500));
  }
  Options options(Options options) {
    options.usefulness = chance(70);
    options.replay_order = chance(50) ? ReplayOrder::kMemory : ReplayOrder::kRecursive;
    options.evict_after_op = chance(15);
    options.max_replay_ratio = chance(20) ? 0.5 : 10.0;
    options.max_depth = chance(20) ? 4 : 10000;
    if (chance(30)) {
      options.sampling = chance(50);
      options.small_filter = chance(50);
    }
    return options;
  }

  // `end_step` is called at the end of most steps.
  void run(StepProgram& steps, const std::function<void()>& end_step) {
    for (int step = 0; step < 6 && !testing::Test::HasFailure(); ++step) {
      try {
        steps.step(chance(20), [this](Program& program) { disturb(program); });
      } catch (const OutOfBudget&) {
      } catch (const KernelFailed&) {
      } catch (const std::bad_alloc&) {
      }
      Program& program = steps.program();
      quiet(program);
      program.check();
      drop_all(program);
      if (chance(80)) {
        end_step();
      }
      program.check();
    }
    end_step();
    finish(steps.program());
  }

 private:
  bool chance(unsigned percent) { return random_() % 100 < percent; }
  Tensor any(const Program& program) { return program.live()[random_() % program.live().size()]; }

  // Called before an op.
  void disturb(Program& program) {
    if (chance(2)) {
      program.device().fail_allocation(static_cast<std::int64_t>(1 + random_() % 6));
    }
    if (chance(1)) {
      program.device().fail_kernel(static_cast<std::int64_t>(1 + random_() % 4));
    }
    if (chance(10)) {
      program.device().during_kernel = [this, &program] {
        try {
          program.engine().free(program.engine().allocate(Bytes(200)));
        } catch (const OutOfBudget&) {
        }
      };
    }
    if (program.live().empty()) {
      return;
    }
    if (chance(3)) {
      program.pin(any(program));
    } else if (chance(1)) {
      program.escape(any(program));
    } else if (chance(1)) {
      program.escape_and_leave(any(program));
    } else if (chance(5)) {
      program.evict(any(program));
    } else if (chance(2)) {
      program.engine().user().evict_everything();
    }
  }
  static void quiet(Program& program) {
    program.device().fail_allocation(0);
    program.device().fail_kernel(0);
    program.device().during_kernel = nullptr;
  }
  // Drops the tensors that a failed step did not drop.
  void drop_all(Program& program) {
    for (const Tensor tensor : std::vector<Tensor>(program.live())) {
      while (program.pins(tensor) > 0) {
        program.unpin(tensor);
      }
      if (!program.storage(tensor).external) {
        program.drop(tensor);
      }
    }
  }
  static void finish(Program& program) {
    program.engine().user().materialize_all();
    for (const Tensor tensor : std::vector<Tensor>(program.live())) {
      program.expect(tensor);
      program.drop(tensor);
    }
    program.check();
    EXPECT_EQ(program.engine().charged(), Bytes(0));
    EXPECT_EQ(program.stats().live_values, 0);
    EXPECT_EQ(program.stats().live_ops, 0);
  }

  std::mt19937_64 random_;
};

}  // namespace recoup::detail
