// Pages of the pool and external bytes share the budget.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "tests/core/support/engine_program.h"

namespace recoup::detail {
namespace {

constexpr PageSizes kPages{.page = 64_B, .huge = 1_KiB};
// Slack: a part of a page at each end of a free range, and the granularity of discards.
constexpr Bytes kParts = 1_KiB;

Options options() {
  Options options = plain_options(32_KiB);
  options.cost_model = CostModel::kBytes;
  return options;
}

TEST(Footprint, TheFirstTouchOfAHugePageTouchesAllOfIt) {
  Footprint footprint(kPages);
  footprint.touch(Bytes(0), 64_B);
  EXPECT_EQ(footprint.touched(), 0_B) << "nothing is counted yet";
  ASSERT_TRUE(footprint.start(4_KiB));
  EXPECT_EQ(footprint.touched(), 4_KiB) << "all of it may have been touched";
  Footprint::Pages pages = footprint.pages_in(Bytes(100), 4_KiB);
  EXPECT_TRUE(pages.touched);
  EXPECT_EQ(pages.from, 128_B);
  footprint.discard(pages);
  EXPECT_EQ(footprint.touched(), 128_B);
  EXPECT_FALSE(footprint.pages_in(Bytes(100), 4_KiB).touched);
  footprint.touch(Bytes(200), 1_B);
  EXPECT_EQ(footprint.touched(), 192_B) << "a partly touched huge page is touched page by page";
  footprint.touch(2_KiB, 1_B);
  EXPECT_EQ(footprint.touched(), 192_B + 1_KiB);
  EXPECT_TRUE(footprint.covers(2_KiB + 1000_B, 24_B));
  EXPECT_FALSE(footprint.covers(2_KiB + 1000_B, 25_B));
  footprint.discard(footprint.pages_in(Bytes(0), 4_KiB));
  EXPECT_EQ(footprint.touched(), 0_B);
}

TEST(Footprint, ADeviceWithoutDiscardIsNotAsked) {
  Program p(options());
  p.drop(p.source(30_KiB));
  p.external(20_KiB);
  EXPECT_FALSE(p.engine().footprint().counting());
  EXPECT_EQ(p.device().discards, 0);
}

TEST(Footprint, NothingIsCountedWhileThePoolHasTheWholeBudget) {
  Program p(options(), kPages);
  p.drop(p.source(30_KiB));
  p.source(8_KiB);
  EXPECT_FALSE(p.engine().footprint().counting());
  EXPECT_EQ(p.device().discards, 0);
}

TEST(Footprint, AShrunkPoolReturnsItsPages) {
  Program p(options(), kPages);
  const Tensor kept = p.source(4_KiB);
  p.drop(p.source(24_KiB));
  p.shrink(24_KiB);
  EXPECT_EQ(p.device().discards, 1)
      << "written pages are discarded, although nothing is counted yet";
  p.external(1_KiB);
  p.drop(p.source(16_KiB));
  p.shrink(12_KiB);
  EXPECT_GT(p.device().discards, 1);
  EXPECT_LE(p.engine().footprint().touched() + 1_KiB, 12_KiB + kParts);
  const int before = p.device().discards;
  p.source(1_KiB);
  EXPECT_EQ(p.device().discards, before) << "discarded pages are not discarded again";
  p.expect(kept);
  p.engine().check();
}

TEST(Footprint, CommittedMemoryIsWhatWasTouchedAndNotReturned) {
  Program p(options(), kPages);
  p.engine().count_pages();
  EXPECT_EQ(p.engine().committed(), 0_B);
  const Tensor kept = p.source(4_KiB);
  p.drop(p.source(20_KiB));
  EXPECT_GE(p.engine().committed(), 24_KiB) << "freed bytes of the pool keep their memory";
  EXPECT_LE(p.engine().committed(), 24_KiB + kParts + kParts);
  p.external(2_KiB);
  EXPECT_GE(p.engine().committed(), 26_KiB);
  p.shrink(16_KiB);
  EXPECT_GE(p.engine().committed(), 6_KiB);
  EXPECT_LE(p.engine().committed(), 16_KiB);
  p.expect(kept);
  p.engine().check();
}

TEST(Footprint, CommittedMemoryIsAllOfThePoolIfNothingIsCounted) {
  Program p(options(), kPages);
  p.source(1_KiB);
  EXPECT_EQ(p.engine().committed(), 32_KiB);
  EXPECT_THROW(p.engine().count_pages(), InternalError) << "the pool is in use";
}

TEST(Footprint, FreePagesAreReturnedForExternalBytes) {
  Program p(options(), kPages);
  p.drop(p.source(30_KiB));
  const Tensor kept = p.source(4_KiB);
  const Tensor outside = p.external(20_KiB);
  EXPECT_LE(p.engine().footprint().touched() + 20_KiB, 32_KiB);
  EXPECT_GT(p.device().discards, 0);
  p.expect(kept);
  p.drop(outside);
  p.drop(p.source(28_KiB));
  const int before = p.device().discards;
  p.drop(p.source(28_KiB));
  EXPECT_EQ(p.device().discards, before) << "no charge, so nothing to discard";
  p.check();
}

TEST(Footprint, OnlyTheNeededPartOfAFreeRangeIsReturned) {
  Program p(options(), kPages);
  p.drop(p.source(30_KiB));
  p.external(2_KiB);
  EXPECT_LE(p.engine().footprint().touched() + 2_KiB, 32_KiB);
  EXPECT_GE(p.engine().footprint().touched(), 26_KiB) << "at most two additional huge pages";
  p.external(8_KiB);
  EXPECT_LE(p.engine().footprint().touched() + 10_KiB, 32_KiB) << "the middle has been discarded";
  EXPECT_GE(p.engine().footprint().touched(), 16_KiB);
  p.check();
}

// Note [End of the pool]
TEST(Footprint, ThePoolEndsWhereChargesOutsideBegin) {
  Program p(options(), kPages);
  const Pool& pool = p.engine().pool();
  const Tensor outside = p.external(20_KiB);
  EXPECT_EQ(pool.capacity(), 12_KiB);
  const int before = p.device().discards;
  std::mt19937_64 random(1);
  for (int i = 0; i < 100; ++i) {
    const Tensor first = p.source(Bytes(static_cast<std::int64_t>(1 + random() % 5000)));
    const Tensor second = p.source(Bytes(static_cast<std::int64_t>(1 + random() % 5000)));
    const bool is_first = random() % 2 == 0;
    p.drop(is_first ? first : second);
    const Tensor third = p.source(Bytes(static_cast<std::int64_t>(1 + random() % 2000)));
    p.drop(is_first ? second : first);
    p.drop(third);
  }
  EXPECT_EQ(p.device().discards, before);
  p.drop(outside);
  EXPECT_EQ(pool.capacity(), 32_KiB);
  p.check();
}

TEST(Footprint, ABlockThatFitsNowhereElseIsPlacedBeyondTheEnd) {
  Program p(options(), kPages);
  const Pool& pool = p.engine().pool();
  const Tensor high = p.source(24_KiB);
  p.escape(p.source(2_KiB));  // before the end, with 6 and 8 KiB around it
  p.drop(high);
  p.external(16_KiB);
  EXPECT_EQ(pool.capacity(), 16_KiB);
  const Tensor wide = p.source(12_KiB);
  EXPECT_GT(pool.capacity(), 16_KiB);
  EXPECT_LE(p.engine().footprint().touched() + 16_KiB, 32_KiB + kParts);
  p.drop(wide);
  p.source(1_KiB);
  EXPECT_EQ(pool.capacity(), 16_KiB);
  p.check();
}

TEST(Footprint, StaysWithinTheBudgetInRandomPrograms) {
  std::mt19937_64 random(1);
  const auto number = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  Program p(options(), kPages);
  std::vector<Tensor> held;
  int most_free = 0;
  for (int step = 0; step < 3000; ++step) {
    try {
      switch (number(0, 3)) {
        case 0:
          held.push_back(p.external(Bytes(number(1, 6000))));
          break;
        case 1:
          held.push_back(p.source(Bytes(number(1, 4000))));
          break;
        default:
          if (held.empty()) {
            break;
          }
          held.push_back(p.op({held[static_cast<std::size_t>(
                                  number(0, static_cast<std::int64_t>(held.size()) - 1))]},
                              Bytes(number(1, 4000))));
      }
    } catch (const OutOfBudget&) {
    }
    while (held.size() > 12 || (!held.empty() && number(0, 3) == 0)) {
      const auto at = number(0, static_cast<std::int64_t>(held.size()) - 1);
      p.drop(held[static_cast<std::size_t>(at)]);
      held.erase(held.begin() + at);
    }
    p.check();
    if (p.stats().external_bytes > 0) {
      // A part of a page at each end of a free range stays.
      ASSERT_LE(p.engine().footprint().touched() + Bytes(p.stats().external_bytes),
                32_KiB + kParts + Bytes(static_cast<std::int64_t>(2 * 64 * held.size())));
      ++most_free;
    }
  }
  EXPECT_GT(most_free, 500);
  EXPECT_GT(p.device().discards, 20);
}

}  // namespace
}  // namespace recoup::detail
