// What stays of the dead, one hand-made program each.
#include <gtest/gtest.h>

#include "tests/core/support/engine_contract.h"

namespace recoup::detail {
namespace {

class EngineDeath : public EngineContract {};

//   x! -> [a] -> [b]      a dies: b does not need it            -> a is freed
//   x! -> [a] -> (b)      a dies: b would have to be made of it -> a stays until b is back
TEST_F(EngineDeath, ADeadValueIsKeptOnlyWhileItIsUseful) {
  Program& p = start(8);
  const Tensor x = p.source(kUnit);
  const Tensor a = p.op({x}, kUnit);
  p.op({a}, kUnit);
  p.drop(a);
  EXPECT_EQ(p.engine().charged(), units(2));
  EXPECT_EQ(p.stats().drops, 1);

  const Tensor useful = p.op({x}, kUnit);
  const Tensor c = p.op({useful}, kUnit);
  EXPECT_TRUE(p.evict(c));
  p.drop(useful);
  EXPECT_EQ(p.engine().charged(), units(3));
  p.check();
  p.expect(c);
  EXPECT_EQ(p.stats().replays, 1);
  EXPECT_EQ(p.engine().charged(), units(3));  // c came and what it was made of went
  EXPECT_EQ(p.stats().drops, 2);
}

// The same with an evicted dead value between: usefulness reaches through (d).
//   x! -> [a] -> (d) -> (c)
TEST_F(EngineDeath, UsefulnessReachesThroughEvictedValues) {
  Program& p = start(8);
  const Tensor x = p.source(kUnit);
  const Tensor a = p.op({x}, kUnit);
  const Tensor d = p.op({a}, kUnit);
  const Tensor c = p.op({d}, kUnit);
  p.evict(c);
  p.evict(d);
  p.drop(d);
  p.drop(a);
  EXPECT_EQ(p.engine().charged(), units(2));
  p.drop(c);
  EXPECT_EQ(p.engine().charged(), units(1));
  EXPECT_EQ(p.stats().live_ops, 0);
}

TEST_F(EngineDeath, WithoutUsefulnessTheDeadGoAtOnce) {
  Options options = options_of(8);
  options.usefulness = false;
  Program& p = start(options);
  const Tensor x = p.source(kUnit);
  const Tensor a = p.op({x}, kUnit);
  const Tensor c = p.op({a}, kUnit);
  EXPECT_TRUE(p.evict(c));
  p.drop(a);
  EXPECT_EQ(p.engine().charged(), units(1));
  p.expect(c);
  EXPECT_EQ(p.stats().replays, 2);
}

//   x! (dead) -> [a, pinned]    room is needed: a becomes a non-recomputable value and x goes,
//   before any error
TEST_F(EngineDeath, DeadSourcesGoBeforeAnError) {
  Program& p = start(5);
  const Tensor x = p.source(units(2));
  const Tensor a = p.op({x}, units(3));
  p.drop(x);
  EXPECT_EQ(p.engine().charged(), units(5));  // what hangs on it is larger than it
  p.pin(a);
  p.op({}, units(2));
  EXPECT_TRUE(p.non_recomputable(a));
  EXPECT_EQ(p.engine().charged(), units(5));
  p.unpin(a);
}

// What hangs on a dead non-recomputable value is no larger than the non-recomputable value: not
// worth keeping.
TEST_F(EngineDeath, DeadSourcesThatHoldLittleGoAtOnce) {
  Program& p = start(5);
  const Tensor x = p.source(units(2));
  const Tensor a = p.op({x}, units(2));
  p.drop(x);
  EXPECT_EQ(p.engine().charged(), units(2));
  EXPECT_TRUE(p.non_recomputable(a));
}

TEST_F(EngineDeath, AbandonedExternalsAreSweptBeforeAnError) {
  Program& p = start(4);
  const Tensor x = p.external(units(2));
  p.abandon(x);
  p.op({}, units(3));
  EXPECT_EQ(p.stats().external_bytes, 0);
  EXPECT_TRUE(p.storage(x).forgotten);
}

// A dead external non-recomputable value is charged, and its bytes kept, while something can only
// be made from it.
TEST_F(EngineDeath, ADeadExternalSourceIsKeptForItsDependents) {
  Program& p = start(8);
  const Tensor x = p.external(kUnit);
  const Tensor a = p.op({x}, units(3));
  EXPECT_TRUE(p.evict(a));
  p.drop(x);
  EXPECT_FALSE(p.storage(x).forgotten);
  EXPECT_EQ(p.engine().charged(), kUnit);
  p.expect(a);
  p.drop(a);
  EXPECT_TRUE(p.storage(x).forgotten);
  EXPECT_EQ(p.engine().charged(), Bytes(0));
}

}  // namespace
}  // namespace recoup::detail
