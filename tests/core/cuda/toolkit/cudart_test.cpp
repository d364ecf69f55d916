// The toolkit's runtime, as far as the machine lets it: without a driver that is one message.
#include "csrc/cuda/toolkit/cudart.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "csrc/cuda/error.h"
#include "csrc/cuda/move.h"

namespace recoup::detail::cuda {
namespace {

std::unique_ptr<Runtime> runtime_or_null() {
  try {
    return make_cudart();
  } catch (const CudaError&) {
    return nullptr;
  }
}

TEST(Cudart, SaysWhatIsMissing) {
  try {
    make_cudart();
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

TEST_F(Gpu, MoreThanThereIsIsNull) {
  const DeviceMemory memory = runtime_->memory(0);
  EXPECT_LE(memory.free, memory.total);
  EXPECT_EQ(runtime_->allocate(0, memory.total + memory.total), nullptr);
  EXPECT_EQ(runtime_->memory(0).free, memory.free);
}

}  // namespace
}  // namespace recoup::detail::cuda
