// Foreseen: steps of the random networks of step_program.h, with foresight.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <thread>
#include <utility>

#include "csrc/steps/evict/foresight.h"
#include "csrc/steps/prefetch/next_use_predictor.h"
#include "tests/core/support/recorded_steps.h"
#include "tests/core/support/seeds.h"
#include "tests/core/support/step_program.h"

namespace recoup::detail {

inline constexpr std::int64_t kWork = seeds(30'000, 8'000);

inline Bytes budget_of(std::uint64_t seed) {
  return Bytes(static_cast<std::int64_t>(1500 + 37 * (seed % 60)));
}

// Runs steps with foresight, and with predicted uses if there is a spill tier. `on_thread`: plans
// are made on a thread, concurrently with the program.
class Foreseen {
 public:
  Foreseen(std::uint64_t seed, const Options& options, Observer* observer = nullptr,
           bool on_thread = false, StepProgram::Keep keep = StepProgram::Keep::kNothing)
      : program_(seed, options, keep),
        foresight_(engine(), {.work = kWork, .background = on_thread}),
        predictor_(engine()),
        observers_{options.spill > Bytes(0) ? &predictor_ : nullptr, &foresight_, observer} {
    if (options.spill > Bytes(0)) {
      engine().set_forecast(&predictor_);
    }
    engine().set_victim_plan(&foresight_);
    engine().set_observer(&observers_);
  }
  ~Foreseen() {
    engine().set_victim_plan(nullptr);
    engine().set_forecast(nullptr);
    engine().set_observer(nullptr);
  }
  Foreseen(const Foreseen&) = delete;
  Foreseen& operator=(const Foreseen&) = delete;

  [[nodiscard]] Engine& engine() { return program_.program().engine(); }
  [[nodiscard]] StepProgram& program() { return program_; }
  [[nodiscard]] Stats counts() { return engine().stats(); }
  // Waits for a plan that is being made on the thread. The next op adopts it.
  void wait() const {
    while (foresight_.disturbs()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  void end_step() { observers_.on_step("step"); }

  // Returns the cost of the step's replays, or nullopt if it does not fit.
  std::optional<std::int64_t> step(bool extra = false, StepProgram::BeforeOp before_op = nullptr) {
    const std::int64_t before = engine().counters().replay_cost_ns;
    try {
      program_.step(extra, std::move(before_op));
    } catch (const OutOfBudget&) {
      return std::nullopt;
    }
    program_.program().check();
    const std::int64_t cost = engine().counters().replay_cost_ns - before;
    end_step();
    program_.program().check();
    return cost;
  }

 private:
  StepProgram program_;
  Foresight foresight_;
  NextUsePredictor predictor_;
  Observers observers_;
};

}  // namespace recoup::detail
