// The allocator of memory outside of scopes.
#include "tests/core/cuda/cache.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/core/cuda/fake_cuda.h"

namespace recoup::detail::cuda {
namespace {

class CudaCache : public testing::Test {
 protected:
  ~CudaCache() override { cache_.check(); }

  FakeCuda cuda_{{.seed = 5, .memory = 64_MiB}};
  Cache cache_{cuda_, 0};
  Stream other_ = cuda_.new_stream();
};

TEST_F(CudaCache, ReusesFreedMemory) {
  void* const first = cache_.allocate(1000_B, {});
  ASSERT_NE(first, nullptr);
  EXPECT_TRUE(cache_.owns(first));
  EXPECT_EQ(cache_.used(), 1024_B);
  EXPECT_EQ(cache_.reserved(), 2_MiB);
  cache_.free(first);
  EXPECT_FALSE(cache_.owns(first));
  EXPECT_EQ(cache_.allocate(1024_B, {}), first);
  EXPECT_EQ(cuda_.allocated(0), 2_MiB);
  EXPECT_EQ(cuda_.waits(), 0);
}

TEST_F(CudaCache, SizeClassesHaveTheirOwnSegments) {
  void* const small = cache_.allocate(1_MiB, {});
  void* const large = cache_.allocate(5_MiB, {});
  void* const huge = cache_.allocate(11_MiB, {});
  EXPECT_EQ(cache_.reserved(), 2_MiB + 20_MiB + 12_MiB);
  cache_.free(huge);
  // The smaller block would waste more than a fifth of the segment of 12 MiB.
  EXPECT_NE(cache_.allocate(Bytes(9 * 1024 * 1024 + 1), {}), huge);
  EXPECT_EQ(cache_.allocate(12_MiB, {}), huge);
  cache_.free(small);
  cache_.free(large);
}

TEST_F(CudaCache, ReturnsUnusedSegmentsBeforeItFails) {
  void* const huge = cache_.allocate(40_MiB, {});
  ASSERT_NE(huge, nullptr);
  EXPECT_EQ(cache_.allocate(50_MiB, {}), nullptr);
  cache_.free(huge);
  EXPECT_NE(cache_.allocate(50_MiB, {}), nullptr);
  EXPECT_EQ(cuda_.allocated(0), 50_MiB);
}

TEST_F(CudaCache, EmptyKeepsSegmentsInUse) {
  void* const small = cache_.allocate(1_B, {});
  cache_.free(cache_.allocate(30_MiB, {}));
  cache_.empty();
  EXPECT_EQ(cache_.reserved(), 2_MiB);
  EXPECT_TRUE(cache_.owns(small));
  cache_.free(small);
  cache_.empty();
  EXPECT_EQ(cuda_.allocated(0), 0_B);
}

TEST_F(CudaCache, AStreamHasItsOwnBlocks) {
  void* const block = cache_.allocate(1_MiB, {});
  cache_.free(block);
  void* const others = cache_.allocate(1_MiB, other_);
  EXPECT_NE(others, block);
  EXPECT_EQ(cache_.allocate(1_MiB, {}), block);
  EXPECT_EQ(cuda_.waits(), 0);
}

TEST_F(CudaCache, ABlockThatAnotherStreamUsesIsNotReused) {
  void* const block = cache_.allocate(1_MiB, {});
  cuda_.launch(other_, [] {});
  cache_.record_stream(block, other_);
  cache_.free(block);
  EXPECT_EQ(cache_.used(), 0_B);
  void* const second = cache_.allocate(1_MiB, {});
  EXPECT_NE(second, block);
  cuda_.synchronize_all();
  EXPECT_EQ(cache_.allocate(1_MiB, {}), block);
  EXPECT_EQ(cuda_.events(), 0);
}

TEST_F(CudaCache, TheHostWaitsBeforeItFails) {
  void* const block = cache_.allocate(40_MiB, {});
  cuda_.launch(other_, [] {});
  cache_.record_stream(block, other_);
  cache_.free(block);
  EXPECT_NE(cache_.allocate(40_MiB, {}), nullptr);
  EXPECT_EQ(cuda_.synchronizations(), 1);
}

TEST_F(CudaCache, EventsOfACapturedStreamAreRecordedLater) {
  void* const block = cache_.allocate(1_MiB, {});
  cache_.record_stream(block, other_);
  cuda_.begin_capture(other_);
  cache_.free(block);
  cache_.check();
  EXPECT_NE(cache_.allocate(1_MiB, {}), block);
  cuda_.end_capture(other_);
  static_cast<void>(cache_.allocate(1_B, {}));  // retries the recording
  cuda_.synchronize_all();
  EXPECT_EQ(cache_.allocate(1_MiB, {}), block);
}

TEST_F(CudaCache, ACaptureMayBeginDuringRecord) {
  void* const block = cache_.allocate(1_MiB, {});
  cache_.record_stream(block, other_);
  cuda_.begin_capture_at_record(other_);
  cache_.free(block);
  cache_.check();
  EXPECT_EQ(cuda_.events(), 0);
  EXPECT_NE(cache_.allocate(1_MiB, {}), block);
  cuda_.end_capture(other_);
  static_cast<void>(cache_.allocate(1_B, {}));  // retries the recording
  cuda_.synchronize_all();
  EXPECT_EQ(cache_.allocate(1_MiB, {}), block);
}

TEST_F(CudaCache, CanFailWithoutWaiting) {
  void* const huge = cache_.allocate(40_MiB, {});
  cuda_.launch(other_, [] {});
  cache_.record_stream(huge, other_);
  cache_.free(huge);
  EXPECT_EQ(cache_.allocate(50_MiB, {}, Cache::Shortage::kFail), nullptr);
  EXPECT_EQ(cache_.reserved(), 40_MiB);
  EXPECT_EQ(cuda_.synchronizations(), 0);
}

TEST_F(CudaCache, FreeingForeignMemoryThrows) {
  int here = 0;
  EXPECT_THROW(cache_.free(&here), InternalError);
}

// Kernels on two streams run late, in any order, and access memory that was freed long ago.
TEST_F(CudaCache, ABlockIsReusedOnlyAfterItsUsersFinish) {
  std::mt19937_64 random(9);
  struct Tensor {
    char* memory;
    Bytes size;
    char content;
    Stream stream;
  };
  std::vector<Tensor> tensors;
  int wrong = 0;
  char content = 0;
  for (int step = 0; step < 4000; ++step) {
    if (tensors.size() < 8 && random() % 2 == 0) {
      const Bytes size(1 + static_cast<std::int64_t>(random() % 3000));
      const Stream stream = random() % 2 == 0 ? Stream() : other_;
      auto* const memory = static_cast<char*>(cache_.allocate(size, stream));
      tensors.push_back({memory, size, ++content, stream});
      cuda_.launch(stream, [=] { std::fill_n(memory, size.count(), content); });
    } else if (!tensors.empty()) {
      const std::size_t at = random() % tensors.size();
      const Tensor tensor = tensors[at];
      const Stream reader = random() % 2 == 0 ? Stream() : other_;
      if (reader != tensor.stream) {
        const Event ready = cuda_.create_event(0, false);
        cuda_.record(ready, tensor.stream);
        cuda_.wait_surely(reader, ready);
        cache_.record_stream(tensor.memory, reader);
      }
      cuda_.launch(reader, [&wrong, tensor] {
        wrong += std::count(tensor.memory, tensor.memory + tensor.size.count(), tensor.content) ==
                         tensor.size.count()
                     ? 0
                     : 1;
      });
      if (random() % 2 == 0) {
        cache_.free(tensor.memory);
        tensors.erase(tensors.begin() + static_cast<std::ptrdiff_t>(at));
      }
    }
    cuda_.run(static_cast<int>(random() % 3));
    cache_.check();
  }
  cuda_.synchronize_all();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(cuda_.synchronizations(), 0);
}

}  // namespace
}  // namespace recoup::detail::cuda
