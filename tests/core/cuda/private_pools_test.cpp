// Memory of CUDA graphs, as PyTorch asks for it.
#include "csrc/cuda/private_pools.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "csrc/cuda/allocator.h"
#include "csrc/cuda/error.h"
#include "tests/core/cuda/fake_cuda.h"

namespace recoup::detail::cuda {
namespace {

class CudaPools : public testing::Test {
 protected:
  CudaPools() : CudaPools({.seed = 3, .devices = 2, .memory = 64_MiB}) {}
  explicit CudaPools(const FakeCuda::Options& options)
      : cuda_(options), allocator_(cuda_, scopes_) {}
  ~CudaPools() override { allocator_.check(); }

  // As PyTorch begins and ends a capture.
  void begin(PrivatePools::Id pool, Stream stream) {
    allocator_.begin_pool(stream.device, pool, [=](Stream each) { return each == stream; });
    cuda_.begin_capture(stream);
  }
  void end(PrivatePools::Id pool, Stream stream) {
    cuda_.end_capture(stream);
    allocator_.end_pool(stream.device, pool);
  }

  FakeCuda cuda_;
  Scopes scopes_;
  Allocator allocator_;
  Stream stream_ = cuda_.new_stream();
};

TEST_F(CudaPools, AreUsedAgainByThemselvesAlone) {
  void* const outside = allocator_.allocate(1_MiB, 0, stream_);
  allocator_.free(outside);
  begin({1, 0}, stream_);
  void* const early = allocator_.allocate(1_MiB, 0, stream_);
  EXPECT_NE(early, outside);
  EXPECT_TRUE(allocator_.owns(early));
  allocator_.free(early);
  EXPECT_FALSE(allocator_.owns(early));
  EXPECT_EQ(allocator_.allocate(1_MiB, 0, stream_), early);
  end({1, 0}, stream_);
  EXPECT_EQ(allocator_.usage(0).used, 1_MiB);
  EXPECT_EQ(allocator_.usage(0).reserved, 4_MiB);
  allocator_.free(early);
  allocator_.check();
  // The graph still writes there.
  EXPECT_EQ(allocator_.allocate(1_MiB, 0, stream_), outside);
  EXPECT_NE(allocator_.allocate(1_MiB, 0, stream_), early);
  allocator_.empty_cache();
  EXPECT_EQ(cuda_.allocated(0), 4_MiB);
  allocator_.release_pool(0, {1, 0});
  EXPECT_EQ(cuda_.allocated(0), 2_MiB);
}

TEST_F(CudaPools, TakeTheStreamsOfTheirFilter) {
  const Stream other = cuda_.new_stream();
  begin({1, 0}, stream_);
  begin({2, 0}, other);
  void* const first = allocator_.allocate(1_B, 0, stream_);
  void* const second = allocator_.allocate(1_B, 0, other);
  static_cast<void>(allocator_.allocate(1_B, 0, {}));
  static_cast<void>(allocator_.allocate(1_B, 1, {.handle = nullptr, .device = 1}));
  EXPECT_EQ(cuda_.allocated(0), 6_MiB);
  end({1, 0}, stream_);
  allocator_.free(first);
  allocator_.release_pool(0, {1, 0});
  EXPECT_EQ(cuda_.allocated(0), 6_MiB) << "a device on which a graph is captured was waited for";
  end({2, 0}, other);
  allocator_.free(second);
  EXPECT_EQ(cuda_.allocated(0), 4_MiB);
  allocator_.release_pool(0, {2, 0});
  EXPECT_EQ(cuda_.allocated(0), 2_MiB);
  EXPECT_EQ(cuda_.releases_while_captured(), 0);
}

TEST_F(CudaPools, AreSharedByCaptures) {
  begin({0, 7}, stream_);
  void* const first = allocator_.allocate(1000_B, 0, stream_);
  allocator_.free(first);
  end({0, 7}, stream_);
  begin({0, 7}, stream_);
  EXPECT_EQ(allocator_.allocate(1000_B, 0, stream_), first);
  allocator_.free(first);
  end({0, 7}, stream_);
  allocator_.release_pool(0, {0, 7});
  allocator_.empty_cache();
  EXPECT_EQ(cuda_.allocated(0), 2_MiB);
  begin({0, 7}, stream_);
  EXPECT_EQ(allocator_.allocate(1000_B, 0, stream_), first);
  allocator_.free(first);
  end({0, 7}, stream_);
  allocator_.release_pool(0, {0, 7});
  EXPECT_EQ(cuda_.allocated(0), 2_MiB);
  allocator_.release_pool(0, {0, 7});
  EXPECT_EQ(cuda_.allocated(0), 0_B);
}

TEST_F(CudaPools, OutliveTheirGraphsUntilAllIsFree) {
  begin({1, 0}, stream_);
  void* const small = allocator_.allocate(1000_B, 0, stream_);
  void* const huge = allocator_.allocate(12_MiB, 0, stream_);
  end({1, 0}, stream_);
  const Stream other = cuda_.new_stream();
  allocator_.record_stream(huge, other.handle);
  allocator_.release_pool(0, {1, 0});
  EXPECT_EQ(cuda_.allocated(0), 14_MiB);
  allocator_.free(small);
  EXPECT_EQ(cuda_.allocated(0), 12_MiB);
  cuda_.launch(other, [=] { std::fill_n(static_cast<char*>(huge), 1000, 'a'); });
  allocator_.free(huge);
  EXPECT_EQ(cuda_.allocated(0), 12_MiB);
  EXPECT_EQ(allocator_.usage(0).used, 0_B);
  allocator_.check();
  cuda_.synchronize_all();
  allocator_.empty_cache();
  EXPECT_EQ(cuda_.allocated(0), 0_B);
  EXPECT_EQ(cuda_.events(), 0);
  EXPECT_THROW(allocator_.release_pool(0, {1, 0}), std::logic_error);
}

TEST_F(CudaPools, WhatIsFreedInACaptureWaitsForItsEnd) {
  const Stream other = cuda_.new_stream();
  begin({1, 0}, stream_);
  cuda_.begin_capture(other);
  void* const block = allocator_.allocate(1000_B, 0, stream_);
  allocator_.record_stream(block, other.handle);
  allocator_.free(block);
  EXPECT_NE(allocator_.allocate(1000_B, 0, stream_), block);
  EXPECT_EQ(cuda_.events(), 0);
  cuda_.end_capture(other);
  end({1, 0}, stream_);
  begin({1, 0}, stream_);
  static_cast<void>(allocator_.allocate(1_B, 0, stream_));  // asks the other stream
  cuda_.synchronize_all();
  EXPECT_EQ(allocator_.allocate(1000_B, 0, stream_), block);
  end({1, 0}, stream_);
}

// Not even what is unused: replays use it.
TEST_F(CudaPools, GiveNothingBackBeforeTheyFail) {
  void* const outside = allocator_.allocate(20_MiB, 0, {});
  allocator_.free(outside);
  begin({1, 0}, stream_);
  allocator_.free(allocator_.allocate(20_MiB, 0, stream_));
  EXPECT_EQ(allocator_.allocate(30_MiB, 0, stream_), nullptr);
  EXPECT_EQ(allocator_.allocate(30_MiB, 0, {}), nullptr);
  EXPECT_EQ(cuda_.allocated(0), 40_MiB);
  end({1, 0}, stream_);
  EXPECT_EQ(allocator_.allocate(60_MiB, 0, {}), nullptr);
  EXPECT_EQ(cuda_.allocated(0), 20_MiB);
  begin({2, 0}, stream_);
  allocator_.release_pool(0, {1, 0});
  EXPECT_EQ(cuda_.allocated(0), 20_MiB);
  end({2, 0}, stream_);
  EXPECT_NE(allocator_.allocate(60_MiB, 0, {}), nullptr);
}

TEST_F(CudaPools, RefuseWhatMakesNoSense) {
  const auto none = [](Stream) { return false; };
  allocator_.begin_pool(0, {1, 2}, none);
  try {
    allocator_.begin_pool(0, {1, 2}, none);
    FAIL() << "filled twice";
  } catch (const std::logic_error& error) {
    EXPECT_STREQ(error.what(), "memory pool (1, 2) is being filled already");
  }
  EXPECT_THROW(allocator_.end_pool(1, {1, 2}), std::logic_error);
  allocator_.end_pool(0, {1, 2});
  EXPECT_THROW(allocator_.end_pool(0, {1, 2}), std::logic_error);
  EXPECT_THROW(allocator_.release_pool(0, {1, 3}), std::logic_error);
  EXPECT_THROW(allocator_.begin_pool(2, {1, 2}, none), CudaError);
  allocator_.release_pool(0, {1, 2});
  EXPECT_THROW(allocator_.release_pool(0, {1, 2}), std::logic_error);
}

// A capture that fails is never ended, and its filter may be of a graph that is gone.
TEST_F(CudaPools, ALostCaptureDoesNotDisturbTheNext) {
  allocator_.begin_pool(0, {1, 0}, [](Stream) -> bool { throw CudaError("gone"); });
  begin({2, 0}, stream_);
  void* const memory = allocator_.allocate(1_B, 0, stream_);
  EXPECT_THROW(static_cast<void>(allocator_.allocate(1_B, 0, {})), CudaError);
  end({2, 0}, stream_);
  allocator_.release_pool(0, {2, 0});
  allocator_.free(memory);
  allocator_.empty_cache();
  EXPECT_EQ(cuda_.allocated(0), 0_B);
}

class CudaPoolsOfThreads : public CudaPools {
 protected:
  // With memory for all: while one thread captures, what others release stays.
  CudaPoolsOfThreads() : CudaPools(FakeCuda::Options{.seed = 4}) {}
};

// Each thread captures graphs and replays them: they write where they were captured. The thread
// sanitizer sees when that is another thread's by now.
TEST_F(CudaPoolsOfThreads, EachHasItsOwn) {
  std::atomic<int> wrong = 0;
  const auto capture_often = [&](unsigned thread) {
    std::mt19937_64 random(thread);
    const Stream stream = cuda_.new_stream();
    struct Block {
      char* memory;
      std::size_t size;
    };
    const auto make = [&] {
      const std::size_t size = 1 + random() % 5000;
      return Block{static_cast<char*>(
                       allocator_.allocate(Bytes(static_cast<std::int64_t>(size)), 0, stream)),
                   size};
    };
    const auto fill = [](const Block& block, char with) {
      std::fill_n(block.memory, block.size, with);
    };
    for (unsigned graph = 0; graph < 40; ++graph) {
      const PrivatePools::Id pool{thread, graph};
      begin(pool, stream);
      std::array<Block, 6> captured;  // every other one dies in the capture
      for (std::size_t i = 0; i < captured.size(); ++i) {
        captured[i] = make();
        if (i % 2 == 1) {
          allocator_.free(captured[i].memory);
        }
      }
      end(pool, stream);
      const Block outside = make();
      fill(outside, 'o');
      for (int replay = 0; replay < 3; ++replay) {
        for (const Block& block : captured) {
          fill(block, 'g');
        }
        const Block later = make();
        fill(later, 'l');
        allocator_.free(later.memory);
      }
      wrong += std::count(outside.memory, outside.memory + outside.size, 'o') ==
                       static_cast<std::ptrdiff_t>(outside.size)
                   ? 0
                   : 1;
      allocator_.free(outside.memory);
      allocator_.release_pool(0, pool);
      for (std::size_t i = 0; i < captured.size(); i += 2) {
        fill(captured[i], 'g');
        allocator_.free(captured[i].memory);
      }
    }
  };
  std::vector<std::thread> threads;
  for (unsigned thread = 0; thread < 4; ++thread) {
    threads.emplace_back(capture_often, thread);
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(cuda_.releases_while_captured(), 0);
  EXPECT_EQ(allocator_.usage(0).used, 0_B);
  allocator_.empty_cache();
  EXPECT_EQ(cuda_.allocated(0), 0_B);
}

}  // namespace
}  // namespace recoup::detail::cuda
