// The toolkit's runtime. Without a driver only its error message is tested.
#include "csrc/cuda/toolkit/cudart.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "csrc/cuda/error.h"
#include "csrc/cuda/move.h"
#include "csrc/cuda/reservation.h"

namespace recoup::detail::cuda {
namespace {

std::unique_ptr<Runtime> runtime_or_null() {
  try {
    auto runtime = make_cudart();
    return runtime->device_count() > 0 ? std::move(runtime) : nullptr;
  } catch (const CudaError&) {
    return nullptr;
  }
}

TEST(Cudart, WithoutADriverTheErrorSaysSo) {
  try {
    (void)make_cudart()->device_count();
  } catch (const CudaError& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("cudaGetDeviceCount: "), std::string::npos) << message;
    EXPECT_NE(message.find("needs an NVIDIA driver"), std::string::npos) << message;
    return;
  }
  GTEST_SKIP() << "this machine has a GPU";
}

class Gpu : public testing::Test {
 protected:
  void SetUp() override {
    if (!runtime_) {
      GTEST_SKIP() << "no GPU here";
    }
  }

  std::unique_ptr<Runtime> runtime_ = runtime_or_null();
};

TEST_F(Gpu, MovesAsMemmove) {
  constexpr std::size_t kSize = 1 << 20;
  auto* const device = static_cast<char*>(runtime_->allocate(0, Bytes(kSize)));
  auto* const bounce = runtime_->allocate(0, 4096_B);
  auto* const host = static_cast<char*>(runtime_->allocate_pinned(Bytes(kSize)));
  ASSERT_TRUE(device != nullptr && bounce != nullptr && host != nullptr);
  for (const std::int64_t distance : {1, 512, 5000, 300'000, 700'000}) {
    for (const bool up : {false, true}) {
      for (std::size_t i = 0; i < kSize; ++i) {
        host[i] = static_cast<char>(i * 2654435761U >> 13U);
      }
      std::vector<char> want(host, host + kSize);
      const std::int64_t from = up ? 0 : distance;
      const std::int64_t to = up ? distance : 0;
      const Bytes size(static_cast<std::int64_t>(kSize) - distance);
      std::memmove(want.data() + to, want.data() + from, static_cast<std::size_t>(size.count()));
      runtime_->copy({}, device, host, Bytes(kSize));
      move(*runtime_, {}, device + to, device + from, size, {.memory = bounce, .size = 4096_B});
      runtime_->copy({}, host, device, Bytes(kSize));
      runtime_->synchronize(Stream());
      EXPECT_TRUE(std::equal(want.begin(), want.end(), host)) << distance << (up ? " up" : " down");
    }
  }
  runtime_->release_pinned(host);
  runtime_->release(0, bounce);
  runtime_->release(0, device);
}

TEST_F(Gpu, EventsTellTheTime) {
  const Event begin = runtime_->create_event(0, true);
  const Event end = runtime_->create_event(0, true);
  runtime_->record(begin, {});
  runtime_->record(end, {});
  runtime_->wait({}, end);
  runtime_->synchronize(Stream());
  EXPECT_TRUE(runtime_->done(end));
  EXPECT_GE(runtime_->elapsed(begin, end), Nanoseconds(0));
  runtime_->destroy_event(begin);
  runtime_->destroy_event(end);
}

TEST_F(Gpu, AllocatingTooMuchReturnsNull) {
  const DeviceMemory memory = runtime_->memory(0);
  EXPECT_LE(memory.free, memory.total);
  EXPECT_EQ(runtime_->allocate(0, memory.total + memory.total), nullptr);
  EXPECT_EQ(runtime_->memory(0).free, memory.free);
}

TEST_F(Gpu, MapsMemoryToAddresses) {
  const Bytes granule = runtime_->granularity(0);
  ASSERT_GT(granule, 0_B);
  const Bytes size = granule + granule;
  const auto count = static_cast<std::size_t>(size.count());
  auto* const base = static_cast<char*>(runtime_->reserve(0, size + granule));
  auto* const host = static_cast<char*>(runtime_->allocate_pinned(size));
  ASSERT_NE(host, nullptr);
  for (const char content : {'a', 'b'}) {
    // Two maps: a copy crosses the boundary between them.
    ASSERT_TRUE(runtime_->map(0, base, granule));
    ASSERT_TRUE(runtime_->map(0, base + granule.count(), granule));
    std::memset(host, content, count);
    runtime_->copy({}, base, host, size);
    runtime_->synchronize(Stream());
    std::memset(host, 0, count);
    runtime_->copy({}, host, base, size);
    runtime_->synchronize(Stream());
    EXPECT_EQ(std::count(host, host + count, content), size.count());
    runtime_->unmap(0, base + granule.count(), granule);
    runtime_->unmap(0, base, granule);
  }
  runtime_->unreserve(0, base, size + granule);
  runtime_->release_pinned(host);
}

TEST_F(Gpu, ReturnedMemoryIsFree) {
  Reservation reservation(*runtime_, 0, 256_MiB);
  const Bytes before = runtime_->memory(0).free;
  ASSERT_TRUE(reservation.back(256_MiB));
  reservation.check();
  // Only approximately: the driver's own tables also use memory.
  EXPECT_LT(runtime_->memory(0).free, before - 192_MiB);
  reservation.give_back(0_B, 256_MiB);
  EXPECT_EQ(reservation.backed(), 0_B);
  EXPECT_GT(runtime_->memory(0).free, before - 64_MiB);
}

TEST_F(Gpu, MappingTooMuchFails) {
  const std::int64_t granule = runtime_->granularity(0).count();
  const Bytes size(runtime_->memory(0).total.count() / granule * granule * 2);
  auto* const base = static_cast<char*>(runtime_->reserve(0, size));
  EXPECT_FALSE(runtime_->map(0, base, size));
  ASSERT_TRUE(runtime_->map(0, base, Bytes(granule)));
  runtime_->unmap(0, base, Bytes(granule));
  runtime_->unreserve(0, base, size);
}

}  // namespace
}  // namespace recoup::detail::cuda
