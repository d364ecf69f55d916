// Writes under Options::in_place: the address of the result, the memory that the write needs, and
// what stays replayable.
#include <gtest/gtest.h>

#include "tests/core/support/engine_contract.h"

namespace recoup::detail {
namespace {

Options in_place_options(std::int64_t budget_units, InPlace in_place) {
  Options options;
  options.budget = units(budget_units);
  options.small_result_bytes = 64_B;
  options.in_place = in_place;
  return options;
}

TEST(EngineCopyOnWrite, TheStorageMovesAndItsOldBytesAreFreed) {
  for (const InPlace in_place : {InPlace::kShare, InPlace::kCopy}) {
    Program p(in_place_options(4, in_place));
    const Tensor y = p.op({p.source(kUnit)}, kUnit);
    const auto address = p.storage(y).offset;
    p.update(y);
    EXPECT_EQ(p.storage(y).offset == address, in_place == InPlace::kShare);
    EXPECT_EQ(p.stats().peak_bytes, (in_place == InPlace::kShare ? 2 : 3) * kUnit.count());
    EXPECT_EQ(p.engine().charged(), Bytes(2 * kUnit.count()));
    p.check();
    p.expect_all();
  }
}

TEST(EngineCopyOnWrite, ACopyNeedsRoomForBothVersions) {
  Program share(in_place_options(2, InPlace::kShare));
  const Tensor written = share.op({share.source(kUnit)}, kUnit);
  share.update(written);
  share.expect_all();

  Program copy(in_place_options(2, InPlace::kCopy));
  const Tensor stays = copy.op({copy.source(kUnit)}, kUnit);
  EXPECT_THROW(copy.update(stays), OutOfBudget);
  copy.check();
  copy.expect_all();
}

TEST(EngineCopyOnWrite, ANeededOldVersionStaysResident) {
  Program p(in_place_options(6, InPlace::kCopy));
  const Tensor y = p.op({p.source(kUnit)}, kUnit);
  const Tensor z = p.op({y}, kUnit);
  ASSERT_TRUE(p.evict(z));  // it depends on the old version of y
  p.update(y);
  const std::int64_t replays = p.stats().replays;
  p.expect(z);
  EXPECT_EQ(p.stats().replays, replays + 1);  // only z
  p.check();
  p.expect_all();
}

TEST(EngineCopyOnWrite, SourcesMoveTooAndAreFreed) {
  Program p(in_place_options(4, InPlace::kCopy));
  const Tensor x = p.source(kUnit);
  const auto address = p.storage(x).offset;
  p.update(x);
  EXPECT_NE(p.storage(x).offset, address);
  EXPECT_EQ(p.engine().charged(), kUnit);
  p.check();
  p.expect_all();
}

TEST(EngineCopyOnWrite, PinnedAndEscapedStoragesStayInPlace) {
  Program p(in_place_options(6, InPlace::kCopy));
  const Tensor pinned = p.source(kUnit);
  const Tensor escaped = p.source(kUnit);
  p.pin(pinned);
  p.escape(escaped);
  const auto pinned_at = p.storage(pinned).offset;
  const auto escaped_at = p.storage(escaped).offset;
  p.update(pinned);
  p.update(escaped);
  EXPECT_EQ(p.storage(pinned).offset, pinned_at);
  EXPECT_EQ(p.storage(escaped).offset, escaped_at);
  p.check();
  p.expect_all();
}

TEST(EngineCopyOnWrite, AFailedKernelLeavesNoCopy) {
  Program p(in_place_options(6, InPlace::kCopy));
  const Tensor y = p.op({p.source(kUnit)}, kUnit);
  EXPECT_THROW(p.run({.arguments = {{y, Access::kUpdate}}, .fresh = {}, .stops_half_way = true}),
               KernelFailed);
  p.check();
  p.expect_all();
  p.drop(y);
  EXPECT_EQ(p.engine().charged(), kUnit);
}

}  // namespace
}  // namespace recoup::detail
