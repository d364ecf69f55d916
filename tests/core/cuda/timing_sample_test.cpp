#include "csrc/cuda/timing_sample.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>

namespace recoup::detail::cuda {
namespace {

class CudaTimingSample : public testing::Test {
 protected:
  int timed(std::uint64_t kind, std::uint32_t ops) {
    int found = 0;
    for (std::uint32_t i = 0; i < ops; ++i) {
      found += sample_->count(kind) ? 1 : 0;
    }
    return found;
  }

  std::unique_ptr<TimingSample> sample_ = std::make_unique<TimingSample>();
};

TEST_F(CudaTimingSample, TheFirstOpsOfAKindAreTimedAndThenASample) {
  EXPECT_EQ(timed(1, TimingSample::kFirst), TimingSample::kFirst);
  EXPECT_EQ(timed(1, TimingSample::kEach - TimingSample::kFirst), 0);
  EXPECT_EQ(timed(1, 10 * TimingSample::kEach), 10);
  EXPECT_EQ(timed(2, TimingSample::kFirst), TimingSample::kFirst);
}

TEST_F(CudaTimingSample, TimeNextTimesTheNextOp) {
  EXPECT_EQ(timed(1, 2 * TimingSample::kFirst), TimingSample::kFirst);
  sample_->time_next(1);
  EXPECT_TRUE(sample_->count(1));
}

TEST_F(CudaTimingSample, KindsInOneSlotDisplaceEachOther) {
  std::uint64_t other = 2;
  while (TimingSample::place(other) != TimingSample::place(1)) {
    ++other;
  }
  EXPECT_EQ(timed(1, 2 * TimingSample::kFirst), TimingSample::kFirst);
  EXPECT_TRUE(sample_->count(other));
  EXPECT_TRUE(sample_->count(1));
}

TEST_F(CudaTimingSample, KindsOfRoundSizesHaveDistinctSlots) {
  constexpr std::uint64_t kTraits = 0x7f12'3456'7890;
  std::set<std::size_t> places;
  constexpr std::uint64_t kSizes = 256;
  for (std::uint64_t i = 1; i <= kSizes; ++i) {
    places.insert(TimingSample::place((kTraits ^ (i << 12U)) * 0x100000001b3ULL));
  }
  EXPECT_GT(places.size(), kSizes * 9 / 10);
}

}  // namespace
}  // namespace recoup::detail::cuda
