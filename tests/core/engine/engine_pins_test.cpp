// The rules of escapes and pins, with one hand-written program each.
#include <gtest/gtest.h>

#include "tests/core/support/engine_contract.h"

namespace recoup::detail {
namespace {

class EnginePins : public EngineContract {};

// x! -> [a] -> (b): a escapes. b is frozen, a keeps its address, and results of its readers are
// sources.
TEST_F(EnginePins, AnEscapeFreezesDependentsAndFixesTheAddress) {
  Program& p = start(8);
  const Tensor x = p.source(kUnit);
  const Tensor a = p.op({x}, kUnit);
  const Tensor b = p.op({a}, kUnit);
  EXPECT_TRUE(p.evict(b));
  p.engine().user().escape(p.id(a));
  EXPECT_EQ(p.stats().escapes, 1);
  EXPECT_TRUE(p.resident(b));
  EXPECT_FALSE(p.evict(b));
  EXPECT_FALSE(p.evict(a));
  p.foreign_write(a);
  const Tensor c = p.op({a}, kUnit);
  EXPECT_TRUE(p.non_recomputable(c));
  p.foreign_write(a);
  const auto address = p.storage(a).offset;
  p.update(a, {b});
  p.foreign_write(a);
  p.drop(x);
  (void)p.engine().defragment({}, Bytes(0));
  EXPECT_EQ(p.storage(a).offset, address);
  p.check();
  p.drop(a);
  EXPECT_EQ(p.engine().charged(), units(2));
}

// An escape restores an evicted storage. A storage whose bytes are shared cannot be evicted.
TEST_F(EnginePins, AStorageThatKeepsItsBytesIsDisowned) {
  Program& p = start(3);
  const Tensor x = p.source(kUnit);
  const Tensor a = p.op({x}, kUnit);
  EXPECT_TRUE(p.evict(a));
  p.engine().user().escape(p.id(a));
  EXPECT_TRUE(p.resident(a));
  const Tensor b = p.op({x}, kUnit);
  p.storage(b).shared = true;
  EXPECT_FALSE(p.evict(b));
  EXPECT_TRUE(p.non_recomputable(b));
  EXPECT_TRUE(p.value(b).escaped);
  p.check();
  EXPECT_THROW(p.op({x}, kUnit), OutOfBudget);
}

TEST_F(EnginePins, PinsSurviveWrites) {
  Program& p = start(4);
  const Tensor x = p.source(kUnit);
  const Tensor a = p.op({x}, kUnit);
  EXPECT_TRUE(p.evict(a));
  p.pin(a);  // restores it
  p.pin(a);
  const auto address = p.storage(a).offset;
  EXPECT_FALSE(p.evict(a));
  p.update(a, {x});
  EXPECT_FALSE(p.evict(a));
  p.op({x}, kUnit);
  p.op({x}, kUnit);
  (void)p.engine().defragment({}, Bytes(0));
  EXPECT_EQ(p.storage(a).offset, address);
  EXPECT_EQ(p.engine().user().pinned().size(), 2U);  // x and a
  p.unpin(a);
  EXPECT_FALSE(p.evict(a));
  p.unpin(a);
  EXPECT_TRUE(p.evict(a));
}

// The old version of a pinned source is kept as a copy. The pin stays with the storage.
TEST_F(EnginePins, PinsSurviveACopyOfTheOldVersion) {
  Program& p = start(7);
  const Tensor parameter = p.source(kUnit);
  const Tensor b = p.op({parameter}, units(4));
  p.pin(parameter);
  const auto address = p.storage(parameter).offset;
  EXPECT_TRUE(p.evict(b));
  p.update(parameter);
  EXPECT_EQ(p.stats().old_version_copies, 1);
  EXPECT_EQ(p.storage(parameter).offset, address);
  p.check();
  p.unpin(parameter);
}

// A rule holds for all contents of a storage. The block may move, unlike that of a pinned storage.
TEST_F(EnginePins, AStorageThatStaysIsNotEvicted) {
  Program& p = start(4);
  const Tensor x = p.source(kUnit);
  const Tensor a = p.op({x}, kUnit);
  EXPECT_TRUE(p.evict(a));
  p.set_rule(a, StorageRule::kStays);  // restores it
  EXPECT_FALSE(p.evict(a));
  p.update(a, {x});
  EXPECT_FALSE(p.evict(a));
  EXPECT_TRUE(p.value(a).movable());
  const Tensor b = p.op({x}, kUnit);
  p.op({x}, kUnit);
  p.op({x}, kUnit);
  EXPECT_FALSE(p.resident(b));
  p.check();
  EXPECT_EQ(p.engine().user().pinned().size(), 2U);  // x and a
}

TEST_F(EnginePins, AStorageMayDieWhileItIsPinned) {
  Program& p = start(8);
  const Tensor x = p.source(kUnit);
  const Tensor a = p.op({x}, kUnit);
  p.device().during_kernel = [&] {
    p.drop(a);
    p.check();
    EXPECT_EQ(p.engine().charged(), units(3));
  };
  const Call call{.arguments = {{.tensor = x}, {.tensor = a}}, .fresh = {kUnit}};
  // The interpreter cannot compute the reader of a once a has died, so only the metadata is
  // checked.
  p.device().fail_kernel(1);
  EXPECT_THROW(p.run(call), KernelFailed);
  EXPECT_EQ(p.engine().charged(), units(1));
  EXPECT_EQ(p.stats().live_values, 1);
}

// The storage that dies during a replay may be the target of the replay.
TEST_F(EnginePins, AStorageMayDieDuringItsReplay) {
  Program& p = start(8);
  const Tensor x = p.source(kUnit);
  const Tensor a = p.op({x}, kUnit);
  const Tensor b = p.op({a}, kUnit);
  p.engine().user().evict_everything();
  p.device().during_kernel = [&] {
    p.drop(a);
    p.drop(x);
  };
  p.expect(b);
  p.check();
  EXPECT_LE(p.engine().charged(), units(2));
}

}  // namespace
}  // namespace recoup::detail
