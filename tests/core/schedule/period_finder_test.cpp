// Periods of ops in programs that mark no steps, and what is read ahead in them.
#include "csrc/steps/track/period_finder.h"

#include <gtest/gtest.h>

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "csrc/base/hash.h"
#include "csrc/engine/base/decisions.h"
#include "csrc/engine/base/observers.h"
#include "csrc/simulator/simulator.h"
#include "csrc/steps/prefetch/next_use_predictor.h"
#include "csrc/trace/recorder.h"
#include "csrc/trace/sink.h"
#include "tests/core/support/engine_contract.h"

namespace recoup::detail {
namespace {

using Found = PeriodFinder::Found;

// Tells a finder of all ops, and keeps what it found after each.
class Watch final : public Observer {
 public:
  explicit Watch(const Engine& engine) : finder_(engine) {}

  void on_op_begin(std::string_view name, std::span<const Operand> /*operands*/) override {
    name_ = hash_with(0, name);
  }
  void on_op_end(const OpRecord& /*record*/, std::span<const Operand> operands,
                 std::span<const StorageId> fresh) override {
    found_.push_back(finder_.add_op(name_, operands, fresh));
  }
  void restart() { finder_.restart(); }
  // Returns what was found after the ops since the last call, and how often.
  std::vector<Found> take() {
    std::vector<Found> events;
    for (const Found each : std::exchange(found_, {})) {
      if (each != Found::kNothing) {
        events.push_back(each);
      }
    }
    return events;
  }

 private:
  PeriodFinder finder_;
  std::uint64_t name_ = 0;
  std::vector<Found> found_;
};

std::vector<Tensor> weights_of(Program& p, int count) {
  std::vector<Tensor> weights;
  for (int i = 0; i < count; ++i) {
    weights.push_back(p.source(kUnit));
  }
  return weights;
}

// A pass of a model with one op per layer. `cache`: read and replaced, as the cache of a generation
// is. `size`: of the activations.
void pass(Program& p, const std::vector<Tensor>& weights, Bytes size, Tensor* cache = nullptr) {
  const auto call = [&](const std::vector<Argument>& arguments) {
    Call made{.arguments = arguments, .fresh = {size}, .workspace = {}};
    made.cost = Nanoseconds(1000);
    made.repeatable = false;
    return p.run(made).front();
  };
  Tensor x = p.source(kUnit);
  for (const Tensor weight : weights) {
    const Tensor y = call({{.tensor = x}, {.tensor = weight}});
    p.drop(x);
    x = y;
  }
  if (cache != nullptr) {
    const Tensor longer = call({{.tensor = x}, {.tensor = *cache}});
    p.drop(*cache);
    *cache = longer;
  }
  p.drop(x);
}

class Periods : public EngineContract {
 protected:
  void SetUp() override {
    program_ = &start(1000);
    watch_.emplace(program_->engine());
    program_->engine().set_observer(&*watch_);
  }
  void TearDown() override {
    program_->engine().set_observer(nullptr);
    EngineContract::TearDown();
  }
  Program* program_ = nullptr;
  std::optional<Watch> watch_;
};

TEST_F(Periods, APassThatRepeatsIsFoundAfterTwoRuns) {
  const std::vector<Tensor> weights = weights_of(*program_, 20);
  Tensor cache = program_->source(kUnit);
  watch_->take();
  std::vector<Found> all;
  for (int token = 0; token < 5; ++token) {
    pass(*program_, weights, units(1 + token), &cache);
    const std::vector<Found> found = watch_->take();
    all.insert(all.end(), found.begin(), found.end());
  }
  // The first weight is used again in the second run, which is compared from there on.
  EXPECT_EQ(all, (std::vector{Found::kPeriod, Found::kEnd, Found::kEnd}));
}

TEST_F(Periods, AnotherInputOfEachRunIsAllowed) {
  const std::vector<Tensor> weights = weights_of(*program_, 20);
  for (int batch = 0; batch < 5; ++batch) {
    const Tensor input = program_->external(kUnit);
    (void)program_->op({input}, kUnit);
    pass(*program_, weights, kUnit);
    program_->drop(input);
  }
  EXPECT_EQ(watch_->take(), (std::vector{Found::kPeriod, Found::kEnd, Found::kEnd}));
}

TEST_F(Periods, LayersWithDifferentWeightsAreNone) {
  const std::vector<Tensor> weights = weights_of(*program_, 200);
  const Tensor shared = program_->source(kUnit);
  for (int round = 0; round < 2; ++round) {
    for (std::size_t layer = 0; layer < weights.size(); layer += 20) {
      const auto first = weights.begin() + static_cast<std::ptrdiff_t>(layer);
      pass(*program_, {first, first + 20}, kUnit);
      (void)program_->op({shared}, kUnit);
    }
    if (round == 0) {
      EXPECT_TRUE(watch_->take().empty());
    }
  }
  EXPECT_EQ(watch_->take(), std::vector<Found>());  // the second round is compared from its start
}

TEST_F(Periods, ADifferentRunEndsAPeriod) {
  const std::vector<Tensor> weights = weights_of(*program_, 20);
  for (int run = 0; run < 4; ++run) {
    pass(*program_, weights, kUnit);
  }
  EXPECT_EQ(watch_->take(), (std::vector{Found::kPeriod, Found::kEnd}));
  // A period ends where the first weight is used.
  pass(*program_, {weights.begin(), weights.begin() + 18}, kUnit);
  EXPECT_EQ(watch_->take(), std::vector{Found::kEnd});
  for (int run = 0; run < 3; ++run) {
    pass(*program_, weights, kUnit);
  }
  EXPECT_EQ(watch_->take(), std::vector{Found::kPeriod});
  watch_->restart();
  pass(*program_, weights, kUnit);
  EXPECT_TRUE(watch_->take().empty());
}

TEST_F(Periods, LongPeriodsAreFoundAndLongerOnesAreNot) {
  for (const std::uint64_t ops : {PeriodFinder::kLongest, PeriodFinder::kLongest + 1}) {
    watch_->restart();
    const Tensor mark = program_->source(kUnit);
    const Tensor other = program_->source(kUnit);
    for (std::uint64_t op = 0; op < 3 * ops; ++op) {
      program_->update(op % ops == 0 ? mark : other);
    }
    std::vector<Found> expected;
    if (ops == PeriodFinder::kLongest) {
      expected = {Found::kPeriod};
    }
    EXPECT_EQ(watch_->take(), expected);
  }
}

Options tiered(Bytes budget) { return tiered_options(budget, units(64), kUnit); }

void generate(Program& p) {
  const std::vector<Tensor> weights = weights_of(p, 20);
  Tensor cache = p.source(kUnit);
  for (int token = 0; token < 12; ++token) {
    pass(p, weights, kUnit, &cache);
    p.check();
  }
}

// A program that marks steps of its training evaluates without marks, and trains again.
TEST(PeriodsInUse, AnEvaluationAfterMarkedStepsIsFound) {
  Program p(tiered(units(8)));
  NextUsePredictor predictor(p.engine());
  p.engine().set_forecast(&predictor);
  p.engine().set_observer(&predictor);
  const std::vector<Tensor> weights = weights_of(p, 20);
  const auto ahead = [&] {
    return static_cast<double>(p.stats().fetched_ahead_bytes) /
           static_cast<double>(p.stats().fetched_bytes);
  };
  double before = 0;
  for (int round = 0; round < 3; ++round) {
    for (int step = 0; step < 5; ++step) {
      pass(p, weights, kUnit);
      pass(p, weights, kUnit);  // a period within a step
      predictor.on_step("step");
    }
    EXPECT_GT(ahead(), before) << round;
    before = ahead();
    for (int batch = 0; batch < 30; ++batch) {
      pass(p, {weights.begin() + 2, weights.end()}, kUnit);
    }
    EXPECT_GT(ahead(), before) << round;
    before = ahead();
  }
  EXPECT_GT(before, 0.7);
  p.engine().set_forecast(nullptr);
  p.engine().set_observer(nullptr);
  p.expect_all();
  p.check();
}

// A model of twice the budget generates tokens: its weights are read while ops run, without marks
// of steps, and a simulation decides as the live run.
TEST(PeriodsInUse, WeightsAreReadAheadWithoutMarks) {
  for (const int budget : {6, 8, 10}) {
    TraceBuilder builder;
    TraceRecorder recorder(builder);
    {
      Program p(plain_options(units(100)));
      p.engine().set_observer(&recorder);
      generate(p);
      p.engine().set_observer(nullptr);
    }
    DecisionLog live;
    {
      Program p(tiered(units(budget)));
      NextUsePredictor predictor(p.engine());
      Observers observers{&predictor, &live};
      p.engine().set_forecast(&predictor);
      p.engine().set_observer(&observers);
      generate(p);
      p.check();
      EXPECT_GT(p.stats().fetched_ahead_bytes, p.stats().fetched_bytes / 2) << budget;
      p.engine().set_forecast(nullptr);
      p.engine().set_observer(nullptr);
      p.expect_all();
    }
    const Trace trace = builder.take();
    DecisionLog simulated;
    Simulator simulator(trace, {.engine = tiered(units(budget)), .max_time_ratio = 0}, nullptr);
    NextUsePredictor predictor(simulator.engine());
    simulator.engine().set_forecast(&predictor);
    simulator.observe(&predictor, &simulated);
    EXPECT_EQ(simulator.run().status, SimulationResult::Status::kOk);
    EXPECT_TRUE(simulated.decisions() == live.decisions()) << budget;
  }
}

}  // namespace
}  // namespace recoup::detail
