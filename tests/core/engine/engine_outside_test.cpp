// Options::outside: the part of the budget that earlier allocations use, registered or not.
#include <gtest/gtest.h>

#include <stdexcept>

#include "tests/core/support/engine_program.h"

namespace recoup::detail {
namespace {

Options options(Bytes budget, Bytes outside) {
  Options options = plain_options(budget);
  options.outside = outside;
  return options;
}

TEST(EngineOutside, ThePoolGetsTheRest) {
  Program p(options(8_KiB, 5_KiB));
  EXPECT_EQ(p.engine().charged(), 5_KiB);
  const Tensor x = p.source(1_KiB);
  const Tensor a = p.op({x}, 1_KiB);
  const Tensor b = p.op({a}, 1_KiB);
  EXPECT_TRUE(p.resident(a));
  const Tensor c = p.op({b}, 1_KiB);
  EXPECT_FALSE(p.resident(a));
  EXPECT_EQ(p.stats().peak_bytes, (8_KiB).count());
  EXPECT_EQ(p.stats().external_bytes, (5_KiB).count());
  p.check();
  EXPECT_THROW(p.source(4_KiB), OutOfBudget) << "the pool has 3 KiB";
  p.grow(9_KiB);
  p.source(1_KiB);
  p.drop(c);
  p.check();
}

TEST(EngineOutside, StoragesAmongOutsideAreNotChargedAgain) {
  Program p(options(8_KiB, 5_KiB));
  NumericStorage storage;
  storage.external = true;
  storage.outside.resize(1024);
  storage.nbytes = 1_KiB;
  storage.id = p.engine().add_external(&storage, 1_KiB, Engine::Charge::kAmongOutside);
  EXPECT_EQ(p.engine().charged(), 5_KiB);
  const Tensor charged = p.external(1_KiB);
  EXPECT_EQ(p.engine().charged(), 6_KiB);
  p.check();
  p.drop(charged);
  EXPECT_EQ(p.engine().charged(), 5_KiB);
  p.engine().storage_died(storage.id);
  EXPECT_EQ(p.engine().charged(), 5_KiB);
  p.check();
}

// A write to such a storage, while an evicted dependent of it is held, copies its old content. The
// storage still counts as a part of `outside`.
TEST(EngineOutside, AStorageAmongOutsideStaysSoAfterACopy) {
  Program p(options(16_KiB, 5_KiB));
  const Tensor x = p.external(1_KiB, Engine::Charge::kAmongOutside);
  const Tensor y = p.op({x}, 9_KiB);
  ASSERT_TRUE(p.evict(y));
  p.update(x);
  EXPECT_EQ(p.stats().old_version_copies, 1);
  EXPECT_EQ(p.engine().charged(), 5_KiB + 1_KiB) << "the outside bytes, and the copy";
  p.check();
  p.expect_all();
  p.check();
  p.drop(y);
  p.drop(x);
  EXPECT_EQ(p.engine().charged(), 5_KiB);
  p.check();
}

// Note [Segments]. The pool of 4 KiB has no room next to its tensors.
class EngineSegments : public testing::Test {
 protected:
  static Options with_tier(Bytes tier = 64_KiB) {
    Options with = options(8_KiB, 4_KiB);
    with.spill = tier;
    with.spill_unit = 64_B;
    return with;
  }
  // Fills the pool with tensors that stay, and one more, which needs a segment.
  static void expect_no_room(Program& p) {
    for (int i = 0; i < 4; ++i) {
      p.pin(p.source(1_KiB));
    }
    EXPECT_THROW(p.source(1_KiB), OutOfBudget);
  }
  // Needs more memory than the pool has without segments.
  static void fill(Program& p) {
    for (int i = 0; i < 6; ++i) {
      p.source(1_KiB);
    }
  }
};

TEST_F(EngineSegments, AreImportedAsAWhole) {
  Program p(with_tier());
  const Tensor a = p.in_segment(0, 1000_B);
  const Tensor b = p.in_segment(0, 500_B);
  const Tensor other = p.in_segment(1, 100_B);
  p.set_segment(0, 2_KiB);
  fill(p);
  p.check();
  EXPECT_FALSE(p.storage(a).external || p.storage(b).external);
  EXPECT_TRUE(p.storage(other).external) << "segment 1 has an allocation of other code";
  EXPECT_EQ(p.stats().imports, 2);
  EXPECT_EQ(p.engine().outside(), 2_KiB);
  EXPECT_EQ(p.engine().pool().capacity(), 6_KiB);
  EXPECT_LE(p.stats().peak_bytes, (8_KiB).count());
  EXPECT_EQ(p.device().waits_for_outside, 1) << "after the copies";
  p.expect_all();
  p.update(a, {b});
  p.overwrite(other);
  p.expect_all();
  p.check();
}

TEST_F(EngineSegments, AreImportedToThePoolIfAllOfThemFit) {
  Program p(with_tier());
  const Tensor a = p.in_segment(0, 1_KiB);
  const Tensor b = p.in_segment(0, 512_B);
  p.set_segment(0, 2_KiB);
  std::vector<Tensor> made;
  for (int i = 0; i < 3; ++i) {
    made.push_back(p.source(512_B));
  }
  EXPECT_THROW(p.source(7_KiB), OutOfBudget);
  EXPECT_TRUE(p.resident(a) && p.resident(b));
  EXPECT_EQ(p.stats().imports, 2);
  EXPECT_EQ(p.stats().spills, 0);
  p.expect_all();
  p.check();
}

TEST_F(EngineSegments, StayIfOneOfTheirStoragesStays) {
  for (const bool pinned : {false, true}) {
    Program p(with_tier());
    const Tensor a = p.in_segment(0, 1_KiB);
    const Tensor b = p.in_segment(0, 512_B);
    p.set_segment(0, 2_KiB);
    pinned ? p.pin(b) : p.escape(b);
    fill(p);
    EXPECT_EQ(p.stats().imports, 0);
    EXPECT_TRUE(p.storage(a).external && p.storage(b).external);
    p.expect_all();
    p.check();
  }
}

// The segment follows when the op has ended.
TEST_F(EngineSegments, StayWhileAnOpUsesThem) {
  Program p(with_tier());
  const Tensor a = p.in_segment(0, 1_KiB);
  p.set_segment(0, 2_KiB);
  std::vector<Tensor> made;
  for (int i = 0; i < 5; ++i) {
    made.push_back(p.op({a}, 1_KiB));
    EXPECT_TRUE(p.storage(a).external);
  }
  fill(p);
  EXPECT_FALSE(p.storage(a).external);
  p.expect_all();
}

TEST_F(EngineSegments, OfDeadStoragesAreImported) {
  Program p(with_tier());
  const Tensor a = p.in_segment(0, 1_KiB);
  const Tensor b = p.op({a}, 512_B);
  p.set_segment(0, 2_KiB);
  p.evict(b);
  p.drop(a);
  fill(p);
  EXPECT_EQ(p.engine().outside(), 2_KiB);
  p.expect_all();
  p.check();
}

// All or none: the tier has room for one of the two.
TEST_F(EngineSegments, StayIfTheTierHasNoRoomForAll) {
  Program p(with_tier(1_KiB));
  const Tensor a = p.in_segment(0, 768_B);
  const Tensor b = p.in_segment(0, 512_B);
  p.set_segment(0, 2_KiB);
  expect_no_room(p);
  EXPECT_TRUE(p.storage(a).external && p.storage(b).external);
  EXPECT_EQ(p.stats().imports, 0);
  EXPECT_EQ(p.engine().context().tier.used(), Bytes(0));
  p.expect_all();
  p.check();
}

TEST_F(EngineSegments, AWriteThatFailsLosesNothing) {
  for (const int failing : {1, 2}) {
    Program p(with_tier());
    const Tensor a = p.in_segment(0, 768_B);
    const Tensor b = p.in_segment(0, 512_B);
    p.set_segment(0, 2_KiB);
    p.device().fail_spill(failing);
    expect_no_room(p);
    EXPECT_TRUE(p.storage(a).external && p.storage(b).external);
    EXPECT_EQ(p.engine().context().tier.used(), Bytes(0));
    p.expect_all();
    p.check();
  }
}

TEST_F(EngineSegments, ThePoolGetsOnlyReturnedBytes) {
  Program p(with_tier());
  p.device().keeps_of_segment = 512_B;
  p.in_segment(0, 1_KiB);
  p.set_segment(0, 2_KiB);
  fill(p);
  EXPECT_EQ(p.engine().outside(), 2_KiB + 512_B);
  EXPECT_EQ(p.engine().pool().capacity(), 6_KiB - 512_B);
  p.expect_all();
  p.check();
}

TEST_F(EngineSegments, StayWithoutATier) {
  Program p(options(8_KiB, 4_KiB));
  const Tensor a = p.in_segment(0, 1_KiB);
  p.set_segment(0, 2_KiB);
  EXPECT_THROW(fill(p), OutOfBudget);
  EXPECT_TRUE(p.storage(a).external);
  p.expect_all();
}

// The device reports it when a step ends.
TEST_F(EngineSegments, StayWhileOtherCodeHasAllocationsInThem) {
  Program p(with_tier());
  const Tensor a = p.in_segment(0, 1_KiB);
  p.set_segment(0, 2_KiB);
  p.device().segment_changes.push_back({.segment = SegmentId(0), .returnable = Bytes(0)});
  p.engine().update_segments();
  std::vector<Tensor> made;
  for (int i = 0; i < 5; ++i) {
    made.push_back(p.op({}, 1_KiB));
  }
  EXPECT_TRUE(p.storage(a).external);
  EXPECT_EQ(p.stats().imports, 0);
  p.device().segment_changes.push_back({.segment = SegmentId(0), .returnable = 2_KiB});
  p.engine().update_segments();
  fill(p);
  EXPECT_FALSE(p.storage(a).external);
  p.expect_all();
}

TEST(EngineOutside, MustLeaveAPartOfTheBudget) {
  EXPECT_THROW(Program(options(8_KiB, 8_KiB)), std::invalid_argument);
  EXPECT_THROW(Program(options(8_KiB, Bytes(-1))), std::invalid_argument);
}

}  // namespace
}  // namespace recoup::detail
