#include "csrc/cuda/timing_sample.h"

#include <gtest/gtest.h>

#include <memory>

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

TEST_F(CudaTimingSample, TheFirstOpsOfAKindAreTimedAndThenFew) {
  EXPECT_EQ(timed(1, TimingSample::kFirst), TimingSample::kFirst);
  EXPECT_EQ(timed(1, TimingSample::kEach - TimingSample::kFirst), 0);
  EXPECT_EQ(timed(1, 10 * TimingSample::kEach), 10);
  EXPECT_EQ(timed(2, TimingSample::kFirst), TimingSample::kFirst);
}

TEST_F(CudaTimingSample, AnOpWhoseKindIsNotKnownIsFollowedByOneThatIsTimed) {
  EXPECT_EQ(timed(1, 2 * TimingSample::kFirst), TimingSample::kFirst);
  sample_->time_next(1);
  EXPECT_TRUE(sample_->count(1));
}

TEST_F(CudaTimingSample, KindsOfOnePlaceDisplaceEachOther) {
  constexpr std::uint64_t kOther = 1 + TimingSample::kPlaces;
  EXPECT_EQ(timed(1, 2 * TimingSample::kFirst), TimingSample::kFirst);
  EXPECT_TRUE(sample_->count(kOther));
  EXPECT_TRUE(sample_->count(1));
}

}  // namespace
}  // namespace recoup::detail::cuda
