// What PyTorch asks for device memory: from several threads, inside and outside of a scope.
#include "csrc/cuda/allocator.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <thread>

#include "csrc/cuda/error.h"
#include "tests/core/cuda/fake_cuda.h"
#include "tests/core/cuda/fake_scope.h"

namespace recoup::detail::cuda {
namespace {

class CudaAllocator : public testing::Test {
 protected:
  CudaAllocator() : CudaAllocator({.seed = 2, .devices = 2, .memory = 256_MiB}) {}
  explicit CudaAllocator(const FakeCuda::Options& options)
      : cuda_(options), allocator_(cuda_, scopes_) {}
  ~CudaAllocator() override {
    scopes_.check();
    allocator_.check();
  }

  FakeCuda cuda_;
  Scopes scopes_;
  Allocator allocator_;
};

TEST_F(CudaAllocator, EachDeviceHasItsMemory) {
  void* const first = allocator_.allocate(1_MiB, 0, {});
  void* const second = allocator_.allocate(30_MiB, 1, {});
  EXPECT_EQ(allocator_.usage(0).used, 1_MiB);
  EXPECT_EQ(allocator_.usage(1).used, 30_MiB);
  allocator_.free(first);
  allocator_.free(second);
  EXPECT_EQ(allocator_.usage(1).used, 0_B);
  EXPECT_EQ(allocator_.usage(1).reserved, 30_MiB);
  allocator_.empty_cache();
  EXPECT_EQ(cuda_.allocated(0) + cuda_.allocated(1), 0_B);
}

TEST_F(CudaAllocator, AnEmptyTensorIsNull) {
  void* const nothing = allocator_.allocate(0_B, 0, {});
  EXPECT_EQ(nothing, nullptr);
  allocator_.record_stream(nothing, cuda_.new_stream().handle);
  allocator_.free(nothing);
}

TEST_F(CudaAllocator, SaysWhichDeviceThereIsNot) {
  try {
    static_cast<void>(allocator_.allocate(1_B, 2, {}));
    FAIL() << "a third device";
  } catch (const CudaError& error) {
    EXPECT_STREQ(error.what(), "there is no device cuda:2; there are 2");
  }
}

TEST_F(CudaAllocator, RefusesMemoryForAGraph) {
  const Stream stream = cuda_.new_stream();
  cuda_.begin_capture(stream);
  EXPECT_THROW(static_cast<void>(allocator_.allocate(1_B, 0, stream)), CudaError);
  cuda_.end_capture(stream);
  allocator_.free(allocator_.allocate(1_B, 0, stream));
}

TEST_F(CudaAllocator, AScopeGetsWhatItWants) {
  const Stream stream = cuda_.new_stream();
  const auto scope = std::make_shared<FakeScope>(100_B);
  void* const before = allocator_.allocate(100_B, 0, {});
  scopes_.enter(0, scope);
  EXPECT_THROW(scopes_.enter(0, std::make_shared<FakeScope>(1_B)), std::logic_error);
  void* const inside = allocator_.allocate(100_B, 0, {});
  EXPECT_TRUE(scope->owns(inside));
  EXPECT_FALSE(scope->owns(allocator_.allocate(101_B, 0, {})));
  EXPECT_FALSE(scope->owns(allocator_.allocate(100_B, 1, {})));
  allocator_.record_stream(inside, stream.handle);
  EXPECT_EQ(scope->streams(), (std::set<Stream>{{}, stream}));
  allocator_.free(before);
  allocator_.free(inside);
  EXPECT_EQ(scope->used(), 0_B);
  scopes_.leave(0);
  EXPECT_EQ(scope.use_count(), 1);
  EXPECT_FALSE(scope->owns(allocator_.allocate(100_B, 0, {})));
}

TEST_F(CudaAllocator, AScopeThatComesAgainCountsOnce) {
  const auto scope = std::make_shared<FakeScope>(100_B);
  scopes_.enter(0, scope);
  void* const inside = allocator_.allocate(100_B, 0, {});
  const Bytes reserved = allocator_.usage(0).reserved;
  scopes_.leave(0);
  const Bytes outside = allocator_.usage(0).outside;
  scopes_.enter(0, scope);
  EXPECT_EQ(allocator_.usage(0).reserved, reserved);
  EXPECT_EQ(allocator_.usage(0).outside, 0_B);
  scopes_.leave(0);
  EXPECT_EQ(allocator_.usage(0).outside, outside);
  allocator_.free(inside);
}

TEST_F(CudaAllocator, AScopeHasNoGraphs) {
  const auto captured = [this](Stream stream) { return cuda_.capturing(stream); };
  scopes_.enter(0, std::make_shared<FakeScope>(100_B));
  try {
    allocator_.begin_pool(0, {1, 0}, captured);
    FAIL() << "a graph inside of a scope";
  } catch (const std::runtime_error& error) {
    EXPECT_EQ(std::string(error.what())
                  .find("recoup: a CUDA graph is captured inside of a budget on cuda:0"),
              0U);
  }
  allocator_.begin_pool(1, {1, 0}, captured);
  allocator_.end_pool(1, {1, 0});
  scopes_.leave(0);
  allocator_.begin_pool(0, {1, 0}, captured);
  allocator_.end_pool(0, {1, 0});
}

// A thread that is not in the scope captures beside it, and gets nothing of the scope.
TEST_F(CudaAllocator, AGraphIsAskedBeforeAScope) {
  const Stream stream = cuda_.new_stream();
  const auto scope = std::make_shared<FakeScope>(0_B);
  scopes_.enter(0, scope);
  allocator_.begin_pool(0, {1, 0}, [this](Stream each) { return cuda_.capturing(each); });
  scope->want(100_B);
  cuda_.begin_capture(stream);
  EXPECT_FALSE(scope->owns(allocator_.allocate(100_B, 0, stream)));
  EXPECT_TRUE(scope->owns(allocator_.allocate(100_B, 0, {})));
  cuda_.end_capture(stream);
  allocator_.end_pool(0, {1, 0});
}

// What outlives its scope is still its own, while the next one is at work.
TEST_F(CudaAllocator, AScopeLivesUntilItsMemoryIsFree) {
  auto first = std::make_shared<FakeScope>(100_B);
  const std::weak_ptr<FakeScope> watched = first;
  scopes_.enter(0, std::move(first));
  void* const outlives = allocator_.allocate(100_B, 0, {});
  scopes_.leave(0);
  const auto second = std::make_shared<FakeScope>(100_B);
  scopes_.enter(0, second);
  EXPECT_TRUE(second->owns(allocator_.allocate(100_B, 0, {})));
  EXPECT_FALSE(watched.expired());
  allocator_.free(outlives);
  EXPECT_TRUE(watched.expired());
  EXPECT_EQ(second->used(), 1_B);
}

TEST_F(CudaAllocator, CountsWhatIsGiven) {
  void* const outside = allocator_.allocate(1000_B, 0, {});
  EXPECT_EQ(allocator_.usage(0).used, 1024_B);
  EXPECT_EQ(allocator_.usage(0).outside, 2_MiB);
  auto scope = std::make_shared<FakeScope>(100_B);
  scopes_.enter(0, scope);
  EXPECT_EQ(allocator_.usage(0).reserved, 2_MiB + scope->reserved());
  EXPECT_EQ(allocator_.usage(0).outside, 2_MiB) << "the open one's is its own";
  void* const inside = allocator_.allocate(100_B, 0, {});
  EXPECT_EQ(allocator_.usage(0).used, 1025_B);
  allocator_.free(outside);
  EXPECT_EQ(allocator_.usage(0).used, 1_B);
  EXPECT_EQ(allocator_.usage(0).peak_used, 1025_B);
  EXPECT_TRUE(scopes_.owns(inside) && !scopes_.owns_left(inside));
  scopes_.leave(0);
  EXPECT_TRUE(scopes_.owns_left(inside) && !allocator_.owns(inside));
  EXPECT_EQ(allocator_.usage(0).outside, 2_MiB + scope->reserved());
  allocator_.reset_peaks(0);
  EXPECT_EQ(allocator_.usage(0).peak_used, 1_B);
  allocator_.free(inside);
  EXPECT_EQ(allocator_.usage(0).outside, 2_MiB);
}

// For the thread sanitizer: what is another thread's comes back on this one, while kernels run.
TEST_F(CudaAllocator, ThreadsMeet) {
  constexpr int kThreads = 4;
  std::mutex mutex;
  std::vector<std::pair<char*, Bytes>> shared;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      std::mt19937_64 random(static_cast<std::uint64_t>(thread));
      const Stream stream = cuda_.new_stream();
      for (int step = 0; step < 400; ++step) {
        const Bytes size(1 + static_cast<std::int64_t>(random() % 5000));
        auto* const memory = static_cast<char*>(allocator_.allocate(size, 0, stream));
        cuda_.launch(stream, [=] { std::fill_n(memory, size.count(), 'a'); });
        cuda_.run(static_cast<int>(random() % 4));
        const std::lock_guard lock(mutex);
        shared.emplace_back(memory, size);
        const std::size_t at = random() % shared.size();
        if (shared.size() > 16) {
          allocator_.record_stream(shared[at].first, stream.handle);
          allocator_.free(shared[at].first);
          shared.erase(shared.begin() + static_cast<std::ptrdiff_t>(at));
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(shared.size(), 16U);
  for (const auto& [memory, size] : shared) {
    allocator_.free(memory);
  }
  cuda_.synchronize_all();
  EXPECT_EQ(allocator_.usage(0).used, 0_B);
}

}  // namespace
}  // namespace recoup::detail::cuda
