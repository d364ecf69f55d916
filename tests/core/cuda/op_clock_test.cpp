// The durations of ops on streams that run late.
#include "csrc/cuda/op_clock.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/core/cuda/fake_cuda.h"

namespace recoup::detail::cuda {
namespace {

class CudaOpClock : public testing::Test {
 protected:
  ~CudaOpClock() override { clock_.check(); }

  // Runs a kernel that takes `time`.
  void run(Stream stream, OpClock::Token token, Nanoseconds time) {
    const Event begun = clock_.begin(stream);
    cuda_.launch(stream, [this, time] { cuda_.pass(time); });
    clock_.end(stream, begun, token);
  }
  void resolve() {
    clock_.resolve([this](OpClock::Token token, Nanoseconds cost) {
      EXPECT_TRUE(costs_.emplace(token, cost).second) << token << " twice";
    });
  }

  FakeCuda cuda_{{.seed = 4}};
  OpClock clock_{cuda_, 0};
  Stream other_ = cuda_.new_stream();
  std::map<OpClock::Token, Nanoseconds> costs_;
};

TEST_F(CudaOpClock, TheCostIsTheTimeOnTheDevice) {
  run({}, 1, Nanoseconds(50'000));
  run({}, 2, Nanoseconds(70'000));
  resolve();
  EXPECT_TRUE(costs_.empty()) << "nothing ran yet";
  EXPECT_EQ(clock_.pending(), 2U);
  cuda_.synchronize_all();
  resolve();
  // Each task of the fake device takes a microsecond of its own.
  EXPECT_EQ(costs_.at(1), Nanoseconds(52'000));
  EXPECT_EQ(costs_.at(2), Nanoseconds(72'000));
  EXPECT_EQ(clock_.pending(), 0U);
}

TEST_F(CudaOpClock, EventsAreReused) {
  for (OpClock::Token token = 0; token < 100; ++token) {
    run(token % 2 == 0 ? Stream() : other_, token, Nanoseconds(10));
    cuda_.synchronize_all();
    resolve();
    clock_.check();
  }
  EXPECT_EQ(costs_.size(), 100U);
  EXPECT_EQ(cuda_.events(), 2);
  EXPECT_EQ(cuda_.synchronizations(), 0);
}

TEST_F(CudaOpClock, ACancelledOpHasNoCost) {
  clock_.cancel(clock_.begin({}));
  run({}, 7, Nanoseconds(10));
  cuda_.synchronize_all();
  resolve();
  EXPECT_EQ(costs_.size(), 1U);
}

TEST_F(CudaOpClock, TwoThreadsMayRunOpsOnOneStream) {
  const Event first = clock_.begin({});
  const Event second = clock_.begin({});
  clock_.check();
  clock_.end({}, first, 1);
  clock_.end({}, second, 2);
  cuda_.synchronize_all();
  resolve();
  EXPECT_EQ(costs_.size(), 2U);
}

TEST_F(CudaOpClock, ADriverFailureLeaksNothing) {
  cuda_.fail_records(1);
  EXPECT_THROW((void)clock_.begin({}), CudaError);
  clock_.check();
  const Event begun = clock_.begin({});
  cuda_.fail_records(1);
  EXPECT_THROW(clock_.end({}, begun, 1), CudaError);
  clock_.check();
  run({}, 2, Nanoseconds(10));
  cuda_.synchronize_all();
  resolve();
  EXPECT_EQ(costs_.size(), 1U);
  EXPECT_EQ(cuda_.events(), 2);
}

TEST_F(CudaOpClock, EachOpIsResolvedOnceInAnyOrder) {
  std::mt19937_64 random(1);
  for (OpClock::Token token = 0; token < 2000; ++token) {
    run(random() % 2 == 0 ? Stream() : other_, token, Nanoseconds(10));
    cuda_.run(static_cast<int>(random() % 8));
    if (random() % 5 == 0) {
      resolve();
    }
    clock_.check();
  }
  cuda_.synchronize_all();
  resolve();
  EXPECT_EQ(costs_.size(), 2000U);
}

TEST(CudaRoofline, IsTheMaximumOfMemoryAndComputeTime) {
  const Roofline roof{.bytes_a_ns = 2, .flops_a_ns = 10, .launch = Nanoseconds(5)};
  EXPECT_EQ(roof.estimate(100_B, 0), Nanoseconds(55));
  EXPECT_EQ(roof.estimate(100_B, 10'000), Nanoseconds(1005));
  EXPECT_EQ(roof.estimate(0_B, 0), Nanoseconds(5));
}

}  // namespace
}  // namespace recoup::detail::cuda
