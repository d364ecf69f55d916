// The rules of versions and freezes, with one hand-written program each.
#include <gtest/gtest.h>

#include "tests/core/support/engine_contract.h"

namespace recoup::detail {
namespace {

class EngineVersions : public EngineContract {};

//   x! -> [a1] -> [b]           a.update()          x! -> (a1) -> [a2]    same address
//                                                          \---> [b]
TEST_F(EngineVersions, AWriteKeepsTheOldVersionReplayable) {
  Program& p = start(8);
  const Tensor x = p.source(kUnit);
  const Tensor a = p.op({x}, kUnit);
  const Tensor b = p.op({a}, kUnit);
  const auto address = p.storage(a).offset;
  p.update(a, {b});
  EXPECT_EQ(p.storage(a).offset, address);
  EXPECT_FALSE(p.non_recomputable(a));
  EXPECT_EQ(p.stats().freezes, 0);
  p.check();

  // b is restored from a1, which is made in a private buffer while a2 is live.
  EXPECT_TRUE(p.evict(b));
  p.expect(b);
  EXPECT_EQ(p.stats().replays, 2);
  EXPECT_EQ(p.storage(a).offset, address);

  // a2 needs a1 and b. The buffer of a1 becomes that of a2, because no other replay waits for a1.
  EXPECT_TRUE(p.evict(a));
  p.expect(a);
  EXPECT_EQ(p.stats().replays, 4);
  EXPECT_EQ(p.stats().moves, 0);
  EXPECT_EQ(p.engine().charged(), units(3));
}

// The replay of the write has made a2 in the block of a1 when its bits are compared.
TEST_F(EngineVersions, ACheckThatFailsAfterAReplayInPlaceIsAnError) {
  Options options = plain_options(units(8));
  options.check_replays = true;
  Program& p = start(options);
  const Tensor x = p.source(kUnit);
  const Tensor a = p.op({x}, kUnit);
  p.update(a, {x});
  EXPECT_TRUE(p.evict(a));
  p.device().during_kernel = [&p] { p.device().replay_noise = 1; };  // in the replay of a1
  EXPECT_THROW(p.op({a}, kUnit), ReplayDiffers);
  // a2 has the other bits, of which the error is; a further replay makes the right ones.
  p.device().replay_noise = 0;
  EXPECT_TRUE(p.evict(a));
  p.expect(a);
}

//   x! -> (a1) -> (a2)   y = f(a1) waits for a1 too, so the write to a gets a copy of it
//           \---> (y)    z = g(a2, y)
TEST_F(EngineVersions, AnOldVersionWithOtherReadersIsCopied) {
  for (const ReplayOrder order : {ReplayOrder::kMemory, ReplayOrder::kRecursive}) {
    Options options = options_of(8);
    options.replay_order = order;
    Program p(options);
    const Tensor x = p.source(kUnit);
    const Tensor a = p.op({x}, kUnit);
    const Tensor y = p.op({a}, kUnit);
    p.update(a);
    const Tensor z = p.op({a, y}, kUnit);
    const Tensor swapped = p.op({y, a}, kUnit);
    p.engine().user().evict_everything();
    EXPECT_EQ(p.engine().charged(), kUnit);
    p.expect(z);
    p.check();
    p.engine().user().evict_everything();
    p.expect(swapped);
    p.check();
    p.expect_all();
  }
}

// x! -> [a1] -> [a2] -> [a3] in one storage.
TEST_F(EngineVersions, AReplayedWriteReusesTheBufferOfTheOldVersion) {
  Program& p = start(8);
  const Tensor x = p.source(kUnit);
  const Tensor a = p.op({x}, kUnit);
  p.update(a);
  p.update(a, {x});
  EXPECT_TRUE(p.evict(a));
  const std::int64_t allocations = p.stats().allocations;
  p.expect(a);
  EXPECT_EQ(p.stats().replays, 3);
  EXPECT_EQ(p.stats().allocations, allocations + 1);
  EXPECT_EQ(p.stats().moves, 0);
  EXPECT_EQ(p.engine().charged(), units(2));
}

TEST_F(EngineVersions, AnOverwriteNeedsNothingOfTheOldVersion) {
  Program& p = start(8);
  const Tensor x = p.source(kUnit);
  const Tensor a = p.op({x}, kUnit);
  p.overwrite(a, {x});
  EXPECT_EQ(p.stats().live_values, 2);  // x and the new a: the old one has no record
  EXPECT_TRUE(p.evict(a));
  p.expect(a);
  EXPECT_EQ(p.stats().replays, 1);
}

// p! -> b (no record) -> [c], p changes: if c could be evicted, it would be computed from the new
// p.
TEST_F(EngineVersions, FreezesPropagateThroughRemovedValues) {
  Program& p = start(8);
  const Tensor parameter = p.source(kUnit);
  const Tensor b = p.op({parameter}, kUnit);
  const Tensor c = p.op({b}, kUnit);
  p.drop(b);
  p.update(parameter);
  EXPECT_TRUE(p.non_recomputable(c));
  EXPECT_TRUE(p.non_recomputable(parameter));
  EXPECT_FALSE(p.evict(c));
  EXPECT_EQ(p.stats().live_values, 2);
  EXPECT_EQ(p.stats().live_ops, 0);
}

// p! -> (b), p changes: b is restored first and stays resident.
TEST_F(EngineVersions, AFreezeRestoresHeldValues) {
  Program& p = start(8);
  const Tensor parameter = p.source(kUnit);
  const Tensor b = p.op({parameter}, kUnit);
  EXPECT_TRUE(p.evict(b));
  p.update(parameter);
  EXPECT_TRUE(p.resident(b));
  EXPECT_TRUE(p.non_recomputable(b));
  EXPECT_EQ(p.stats().freezes, 1);
  EXPECT_EQ(p.stats().old_version_copies, 0);
}

// p! -> (b), and b would fill more than half of the budget: the old p is kept as a copy.
TEST_F(EngineVersions, AnExpensiveFreezeKeepsACopyInstead) {
  Program& p = start(7);
  const Tensor parameter = p.source(kUnit);
  const Tensor b = p.op({parameter}, units(4));
  EXPECT_TRUE(p.evict(b));
  p.update(parameter);
  EXPECT_FALSE(p.resident(b));
  EXPECT_EQ(p.stats().freezes, 0);
  EXPECT_EQ(p.stats().old_version_copies, 1);
  EXPECT_EQ(p.engine().charged(), units(2));
  p.check();
  p.expect(b);
  EXPECT_FALSE(p.non_recomputable(b));
  p.expect(parameter);
  p.drop(b);
  EXPECT_EQ(p.engine().charged(), units(1));  // the copy was freed with its last dependent
}

// p! -> (b) (c) (d) of 2 units each, in a budget of 6: only two of them fit next to p.
TEST_F(EngineVersions, AFreezeThatDoesNotFitKeepsACopy) {
  Program& p = start(6);
  const Tensor parameter = p.source(units(2));
  for (int i = 0; i < 3; ++i) {
    p.evict(p.op({parameter}, units(2)));
  }
  p.update(parameter);
  EXPECT_EQ(p.stats().old_version_copies, 1);
  p.check();
  p.expect_all();
}

// An external storage keeps its address; its old content is copied into the pool.
TEST_F(EngineVersions, ACopyOfAnExternalSourceIsInThePool) {
  Program& p = start(7);
  const Tensor parameter = p.external(kUnit);
  const Tensor b = p.op({parameter}, units(4));
  EXPECT_TRUE(p.evict(b));
  p.update(parameter);
  EXPECT_EQ(p.stats().old_version_copies, 1);
  EXPECT_EQ(p.stats().external_bytes, kUnit.count());
  EXPECT_EQ(p.engine().charged(), units(2));
  p.check();
  p.expect_all();
}

TEST_F(EngineVersions, AWrittenSourceStaysNonRecomputable) {
  Program& p = start(8);
  const Tensor x = p.source(kUnit);
  const Tensor outside = p.external(kUnit);
  p.update(x, {outside});
  p.update(outside, {x});
  EXPECT_TRUE(p.non_recomputable(x));
  EXPECT_TRUE(p.non_recomputable(outside));
  EXPECT_EQ(p.stats().live_ops, 0);
  // An overwrite of a whole source in the pool can be replayed: it does not depend on the source.
  p.overwrite(x, {outside});
  EXPECT_TRUE(p.evict(x));
  p.expect(x);
}

}  // namespace
}  // namespace recoup::detail
