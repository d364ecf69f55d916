// What the engine keeps of dead values, with one hand-written program each.
#include <gtest/gtest.h>

#include "tests/core/support/engine_contract.h"

namespace recoup::detail {
namespace {

class EngineDeath : public EngineContract {};

// x! -> [a] -> [b], a dies: b is resident, so a is freed.
// x! -> [a] -> (b), a dies: b would be computed from a, so a stays until b is resident.
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
  EXPECT_EQ(p.engine().charged(), units(3));  // c is restored, and its input is freed
  EXPECT_EQ(p.stats().drops, 2);
}

// x! -> [a] -> (d) -> (c): an evicted dead value d lies between a and c.
TEST_F(EngineDeath, UsefulnessPropagatesThroughEvictedValues) {
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

TEST_F(EngineDeath, WithoutUsefulnessDeadValuesAreFreedAtOnce) {
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

// x! (dead) -> [a, pinned]: on a shortage a becomes non-recomputable and x is freed, before an
// error.
TEST_F(EngineDeath, DeadSourcesAreFreedBeforeAnError) {
  Program& p = start(5);
  const Tensor x = p.source(units(2));
  const Tensor a = p.op({x}, units(3));
  p.drop(x);
  EXPECT_EQ(p.engine().charged(), units(5));  // x is kept because its dependent is larger
  p.pin(a);
  p.op({}, units(2));
  EXPECT_TRUE(p.non_recomputable(a));
  EXPECT_EQ(p.engine().charged(), units(5));
  p.unpin(a);
}

// The dependents of a dead source are not larger than the source, so it is not worth keeping.
TEST_F(EngineDeath, DeadSourcesWithSmallDependentsAreFreedAtOnce) {
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

// A dead external source is charged, and its bytes are kept, while a value can only be computed
// from it.
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
