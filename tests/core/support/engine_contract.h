// A fixture for tests of the engine's rules: hand-written programs, whose values are all read at
// the end. In drawings, [x] is resident, (x) is evicted, x! is a non-recomputable value, and an
// arrow is an op.
#pragma once

#include <gtest/gtest.h>

#include <optional>

#include "tests/core/support/engine_program.h"

namespace recoup::detail {

inline constexpr Bytes kUnit = 1_KiB;

inline Bytes units(std::int64_t count) { return Bytes(count * kUnit.count()); }

// Every block is a multiple of one unit, no cost is measured, and the policy evicts the oldest
// value.
inline Options options_of(std::int64_t budget_units) { return plain_options(units(budget_units)); }

class EngineContract : public testing::Test {
 protected:
  Program& start(std::int64_t budget_units) { return start(options_of(budget_units)); }
  Program& start(const Options& options) {
    program_.emplace(options);
    return *program_;
  }
  void TearDown() override {
    if (program_) {
      program_->check();
      program_->grow(program_->engine().budget() + units(100));
      program_->expect_all();
      program_->check();
    }
  }

 private:
  std::optional<Program> program_;
};

}  // namespace recoup::detail
