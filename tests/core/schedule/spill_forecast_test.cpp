// SpillForecast: which values of a repeated step are written in advance, and in which order.
#include "csrc/steps/prefetch/spill_forecast.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "tests/core/support/engine_contract.h"

namespace recoup::detail {
namespace {

// A step of ops that make one value each, in an engine in which nothing is evicted.
class ForecastSteps {
 public:
  explicit ForecastSteps(bool compares)
      : program_(options(compares)), forecast_(program_.engine()) {
    before_ = program_.source(kUnit);
  }

  void begin_step() {
    for (const Tensor tensor : made_) {
      program_.drop(tensor);
    }
    made_.clear();
    expected_ = run_;
    run_ = forecast_.begin_run();
  }
  // Runs an op that reads the source.
  ValueId run_op() {
    made_.push_back(program_.run({.arguments = {{.tensor = before_}}, .fresh = {kUnit}}).front());
    const std::vector<StorageId> fresh{program_.id(made_.back())};
    const Operand source{.storage = program_.id(before_), .value = {}, .reads = true};
    forecast_.add_op({&source, 1}, fresh, expected_);
    return current(made_.back());
  }
  [[nodiscard]] ValueId source() { return current(before_); }
  [[nodiscard]] Program& program() { return program_; }
  [[nodiscard]] SpillForecast& forecast() { return forecast_; }
  [[nodiscard]] Tensor last() const { return made_.back(); }

 private:
  static Options options(bool compares) {
    Options options = plain_options(units(64));
    options.spill = units(64);
    options.spill_unit = kUnit;
    options.spill_compares = compares;
    return options;
  }
  ValueId current(Tensor tensor) { return program_.engine().current(program_.id(tensor)); }

  Program program_;
  SpillForecast forecast_;
  Tensor before_{};
  std::vector<Tensor> made_;
  std::uint64_t run_ = 0;
  std::uint64_t expected_ = 0;
};

TEST(SpillForecast, WhatTheLastRunSpilledIsWrittenTheFirstOneFirst) {
  ForecastSteps steps(true);
  steps.begin_step();
  const ValueId first = steps.run_op();
  const ValueId second = steps.run_op();
  EXPECT_FALSE(steps.forecast().next().valid());
  steps.run_op();
  steps.forecast().on_spill(second);
  steps.run_op();
  steps.begin_step();
  steps.forecast().on_spill(first);  // in the step after the one that made it
  const ValueId first_again = steps.run_op();
  const ValueId second_again = steps.run_op();
  steps.run_op();
  EXPECT_EQ(steps.forecast().next(), second_again);
  EXPECT_EQ(steps.forecast().next(), first_again);
  EXPECT_FALSE(steps.forecast().next().valid());  // each once
  steps.begin_step();
  steps.run_op();
  EXPECT_FALSE(steps.forecast().next().valid());  // the last run spilled nothing
}

TEST(SpillForecast, ValuesThatCannotBeWrittenAreLeftOut) {
  ForecastSteps steps(true);
  steps.begin_step();
  steps.forecast().on_spill(steps.run_op());
  steps.begin_step();
  const ValueId again = steps.run_op();
  (void)steps.program().engine().user().evict(steps.program().id(steps.last()));
  EXPECT_FALSE(steps.program().engine().value(again).resident());
  EXPECT_FALSE(steps.forecast().next().valid());
}

// Where each use invalidates the copy, a value is written after its last use.
TEST(SpillForecast, AUseCountsOnlyIfItInvalidatesTheCopy) {
  for (const bool compares : {true, false}) {
    ForecastSteps steps(compares);
    steps.begin_step();
    steps.run_op();
    steps.run_op();
    steps.forecast().on_spill(steps.source());
    steps.begin_step();
    steps.run_op();
    EXPECT_FALSE(steps.forecast().next().valid());
    steps.run_op();
    EXPECT_EQ(steps.forecast().next().valid(), !compares);
  }
}

}  // namespace
}  // namespace recoup::detail
