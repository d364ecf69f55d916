// The next-use predictor for repeated steps, and copies that run concurrently with ops.
#include "csrc/steps/prefetch/next_use_predictor.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "csrc/engine/base/decisions.h"
#include "csrc/engine/base/observers.h"
#include "csrc/simulator/simulator.h"
#include "csrc/steps/prefetch/copy_load.h"
#include "tests/core/support/engine_contract.h"
#include "tests/core/support/recorded_steps.h"
#include "tests/core/support/step_program.h"

namespace recoup::detail {
namespace {

// A program whose engine has a next-use predictor, or none.
class PredictedRun {
 public:
  PredictedRun(Program& program, bool has_next_use_predictor, Observer* observer = nullptr)
      : engine_(program.engine()), observers_{observer} {
    if (has_next_use_predictor) {
      next_use_predictor_.emplace(engine_);
      engine_.set_forecast(&*next_use_predictor_);
      observers_ = {&*next_use_predictor_, observer};
    }
    engine_.set_observer(&observers_);
  }
  ~PredictedRun() {
    engine_.set_forecast(nullptr);
    engine_.set_observer(nullptr);
  }
  PredictedRun(const PredictedRun&) = delete;
  PredictedRun& operator=(const PredictedRun&) = delete;

  void end_step() { observers_.on_step("step"); }

 private:
  Engine& engine_;
  std::optional<NextUsePredictor> next_use_predictor_;
  Observers observers_;
};

// One training step: forward and backward through layers of one unit each, then an update of all.
void train_step(Program& p, const std::vector<Tensor>& weights) {
  const auto call = [&](const std::vector<Argument>& arguments) {
    Call made{.arguments = arguments, .fresh = {kUnit}, .workspace = {}};
    made.cost = Nanoseconds(1000);
    made.repeatable = false;
    return p.run(made).front();
  };
  Tensor x = p.source(kUnit);
  const auto pass = [&](Tensor weight) {
    const Tensor y = call({{.tensor = x}, {.tensor = weight}});
    p.drop(x);
    x = y;
  };
  for (const Tensor weight : weights) {
    pass(weight);
  }
  for (std::size_t i = weights.size(); i-- > 0;) {
    pass(weights[i]);
  }
  p.drop(x);
  for (const Tensor weight : weights) {
    p.update(weight);
  }
}

struct Outcome {
  Stats stats;
  std::int64_t cost = 0;        // of the copies in the last step
  std::int64_t waited_for = 0;  // bytes of writes in the last step during which no op ran
};

Outcome train(int budget, bool has_next_use_predictor, bool compares = true) {
  Options options = tiered_options(units(budget), units(64), kUnit);
  options.spill_compares = compares;
  Program p(options);
  PredictedRun steps(p, has_next_use_predictor);
  std::vector<Tensor> weights;
  for (int i = 0; i < 12; ++i) {
    weights.push_back(p.source(kUnit));
  }
  const auto waited_for = [&] { return p.stats().spilled_bytes - p.stats().written_behind_bytes; };
  Outcome outcome;
  for (int step = 0; step < 5; ++step) {
    const std::int64_t cost_before = p.stats().spill_cost_ns;
    const std::int64_t waited_before = waited_for();
    train_step(p, weights);
    steps.end_step();
    p.check();
    outcome.cost = p.stats().spill_cost_ns - cost_before;
    outcome.waited_for = waited_for() - waited_before;
  }
  p.expect_all();
  p.check();
  outcome.stats = p.stats();
  return outcome;
}

TEST(NextUsePredictor, ValuesAreFetchedAheadWhileOpsRun) {
  for (const int budget : {5, 6, 8, 10}) {
    const Outcome with = train(budget, true);
    const Outcome without = train(budget, false);
    EXPECT_GT(with.stats.fetched_ahead_bytes, with.stats.fetched_bytes / 3) << budget;
    EXPECT_EQ(without.stats.fetched_ahead_bytes, 0) << budget;
    EXPECT_LT(with.cost, without.cost) << budget;
    EXPECT_LE(with.stats.peak_bytes, units(budget).count());
  }
}

TEST(NextUsePredictor, ValuesAreWrittenAheadOfSpillsWhileOpsRun) {
  const Outcome outcome = train(8, false);
  EXPECT_GT(outcome.stats.written_behind_bytes, outcome.stats.spilled_bytes / 5);
  EXPECT_GT(outcome.stats.clean_spills, outcome.stats.spills);
}

// In steps that repeat, values are written as soon as they are made.
TEST(NextUsePredictor, FewWritesAreWaitedForIfTheStepIsKnown) {
  for (const bool compares : {true, false}) {
    for (const int budget : {8, 10, 12}) {
      const Outcome with = train(budget, true, compares);
      const Outcome without = train(budget, false, compares);
      EXPECT_GT(with.stats.spilled_bytes, 0) << budget;
      EXPECT_LT(with.waited_for, without.waited_for) << budget << compares;
      EXPECT_GT(without.waited_for, 0) << budget << compares;
      EXPECT_LT(with.cost * 19 / 10, without.cost) << budget << compares;
    }
  }
}

TEST(CopyLoad, ThePriceFollowsTheShareThatIsWaitedFor) {
  CopyLoad load;
  Stats stats;
  EXPECT_EQ(load.waited_part(), 1);
  const auto end_step = [&](std::int64_t time, std::int64_t waited) {
    stats.copy_time_ns += time;
    stats.spill_cost_ns += waited;
    load.end_step(stats);
    return load.waited_part();
  };
  EXPECT_DOUBLE_EQ(end_step(1000, 1000), 1);
  EXPECT_DOUBLE_EQ(end_step(1000, 500), 0.75);
  EXPECT_DOUBLE_EQ(end_step(1000, 500), 0.625);
  // Waits count in the step in which they end, so they can exceed the time of its copies.
  EXPECT_DOUBLE_EQ(end_step(1000, 5000), 0.8125);
  for (int step = 0; step < 60; ++step) {
    EXPECT_GT(end_step(0, 0), 0);
  }
  EXPECT_NEAR(load.waited_part(), 0.25, 1e-9);  // no copy, so the next one would be hidden
  for (int step = 0; step < 60; ++step) {
    EXPECT_GE(end_step(1000, 140), 0.25);  // each copy was hidden, and slowed down the ops
  }
}

// There is no shortage, so nothing is written.
TEST(NextUsePredictor, NothingIsCopiedIfEverythingFits) {
  const Outcome outcome = train(20, true);
  EXPECT_EQ(outcome.stats.spills, 0);
  EXPECT_EQ(outcome.stats.fetches, 0);
}

// Random networks: the bits and the budget are kept, and a simulation decides as the live run.
TEST(NextUsePredictor, ASimulationDecidesAsTheLiveRun) {
  std::int64_t ahead = 0;
  std::int64_t written = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const Trace trace = record_steps(seed, plain_options(1_MiB));
    const Options options =
        tiered_options(Bytes(static_cast<std::int64_t>(1500 + 37 * (seed % 60))), 64_KiB, 64_B);
    DecisionLog live;
    bool fits = true;
    {
      StepProgram program(seed, options);
      PredictedRun run(program.program(), true, &live);
      try {
        for (int i = 0; i < 5; ++i) {
          program.step();
          program.program().check();
          run.end_step();
        }
      } catch (const OutOfBudget&) {
        fits = false;
      }
      program.program().check();
      ahead += program.program().stats().fetched_ahead_bytes;
      written += program.program().stats().written_behind_bytes;
    }
    DecisionLog simulated;
    Simulator simulator(trace, {.engine = options, .max_time_ratio = 0}, nullptr);
    NextUsePredictor next_use_predictor(simulator.engine());
    simulator.engine().set_forecast(&next_use_predictor);
    simulator.observe(&next_use_predictor, &simulated);
    const SimulationResult result = simulator.run();
    EXPECT_EQ(result.status == SimulationResult::Status::kOk, fits) << result.reason;
    ASSERT_EQ(simulated.decisions(), live.decisions());
  }
  EXPECT_GT(ahead, 0);
  EXPECT_GT(written, 0);
}

}  // namespace
}  // namespace recoup::detail
