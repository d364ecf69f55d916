// A simulation with noise: decisions depend on noisy measurements, results on the costs of the
// trace.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <stdexcept>
#include <vector>

#include "csrc/simulator/noise.h"
#include "recoup/offline/traces.h"
#include "tests/core/support/engine_contract.h"
#include "tests/core/support/recorded_steps.h"

namespace recoup::detail {
namespace {

struct Noisy {
  SimulationResult result;
  std::vector<Decision> decisions;
};

Noisy simulate_with(const Trace& trace, std::optional<Noise> noise) {
  SimulationOptions options{
      .engine = plain_options(1800_B, "dtr"), .max_time_ratio = 0, .noise = noise};
  options.engine.cost_model = CostModel::kMeasured;
  Noisy noisy;
  noisy.result = simulate(trace, options, &noisy.decisions);
  return noisy;
}

TEST(TraceNoise, ChangesDecisionsButNotTheCostsOfTheProgram) {
  int changed = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const Trace trace = record_steps(seed, plain_options(1_MiB));
    const Noisy without = simulate_with(trace, std::nullopt);
    if (without.result.status != SimulationResult::Status::kOk) {
      continue;
    }
    const Noisy noisy = simulate_with(trace, Noise{.seed = 1, .percent = 80});
    EXPECT_EQ(noisy.decisions, simulate_with(trace, Noise{.seed = 1, .percent = 80}).decisions);
    if (noisy.result.status == SimulationResult::Status::kOk) {
      EXPECT_EQ(noisy.result.plain_cost, without.result.plain_cost);
    }
    changed +=
        noisy.decisions != without.decisions &&
                noisy.decisions != simulate_with(trace, Noise{.seed = 2, .percent = 80}).decisions
            ? 1
            : 0;
  }
  EXPECT_GT(changed, 2);
}

// The logarithm of a measurement over the cost is normal, with the given standard deviation.
TEST(TraceNoise, HasTheGivenDeviation) {
  const Trace trace = record_steps(0, plain_options(1_MiB));
  const auto op = static_cast<std::uint32_t>(trace.ops.size() - 1);
  const auto cost = static_cast<double>(trace.ops[op].cost.count());
  ASSERT_GT(cost, 0);
  EXPECT_EQ(CostNoise({.seed = 1, .percent = 0}, trace).measure(op).took, trace.ops[op].cost);
  CostNoise noise({.seed = 1, .percent = 20}, trace);
  constexpr int kCount = 20'000;
  double sum = 0;
  double squares = 0;
  for (int i = 0; i < kCount; ++i) {
    const Measurement measured = noise.measure(op);
    EXPECT_NE(measured.key, CostKey{0});
    const double ratio = std::log(static_cast<double>(measured.took.count()) / cost);
    sum += ratio;
    squares += ratio * ratio;
  }
  EXPECT_NEAR(sum / kCount, 0, 0.01);
  EXPECT_NEAR(std::sqrt(squares / kCount), 0.2, 0.01);
}

TEST(TraceNoise, IsRefusedOutOfRange) {
  const Trace trace = record_steps(0, plain_options(1_MiB));
  for (const double percent : {-1.0, 200.5, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THROW((void)simulate_with(trace, Noise{.seed = 1, .percent = percent}),
                 std::invalid_argument)
        << percent;
  }
}

}  // namespace
}  // namespace recoup::detail
