// The end of a scope: all live values must be resident within the budget. In drawings, [x] is
// resident, (x) is evicted, and x! is a non-recomputable value.
#include <gtest/gtest.h>

#include "tests/core/support/engine_contract.h"

namespace recoup::detail {
namespace {

class EngineExit : public EngineContract {
 protected:
  static Options options(int budget, bool lent) {
    Options options = plain_options(units(budget));
    options.spill_unit = kUnit;
    options.spill_to_leave = lent;
    return options;
  }
  // x! -> (a), computed with two units of workspace, and two more sources, in a budget of four.
  Program& program_at_its_limit(bool lent) {
    Program& p = start(options(4, lent));
    x_ = p.source(kUnit);
    a_ = p.run({.arguments = {{.tensor = x_}}, .fresh = {kUnit}, .workspace = {kUnit, kUnit}})[0];
    p.evict(a_);
    b_ = p.source(kUnit);
    c_ = p.source(kUnit);
    return p;
  }
  Tensor x_ = 0;
  Tensor a_ = 0;
  Tensor b_ = 0;
  Tensor c_ = 0;
};

TEST_F(EngineExit, FailsWithoutATierIfAReplayNeedsMoreThanTheBudget) {
  Program& p = program_at_its_limit(false);
  EXPECT_THROW(p.engine().user().materialize_all(), OutOfBudget);
  EXPECT_EQ(p.stats().spills, 0);
  p.grow(units(8));
  p.engine().user().materialize_all();
  EXPECT_TRUE(p.engine().user().materialized());
}

TEST_F(EngineExit, FitsWithALentTier) {
  Program& p = program_at_its_limit(true);
  p.engine().user().materialize_all();
  EXPECT_TRUE(p.engine().user().materialized());
  EXPECT_GT(p.stats().spills, 0);
  EXPECT_LE(p.stats().peak_bytes, units(4).count());
  p.expect_all();
  p.check();
}

TEST_F(EngineExit, ATierIsLentOnceAndOnlyForTheBudget) {
  Program& p = program_at_its_limit(true);
  const Tensor d = p.op({x_}, kUnit);  // five units are live
  p.evict(d);
  for (int i = 0; i < 2; ++i) {
    EXPECT_THROW(p.engine().user().materialize_all(), OutOfBudget);
    p.check();
  }
  p.drop(c_);
  p.engine().user().materialize_all();
  p.expect_all();
  p.check();
}

}  // namespace
}  // namespace recoup::detail
