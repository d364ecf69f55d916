// Programs on several streams that run late, in any order that the events allow. Every kernel must
// find the bytes that were there when it was launched.
#include "csrc/cuda/stream_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "csrc/pool/pool.h"
#include "tests/core/cuda/fake_cuda.h"

namespace recoup::detail::cuda {
namespace {

// A program and an engine in one. Values are made and dropped on any stream, and are evicted,
// replayed and moved on streams that the program does not know about.
class StreamProgram {
 public:
  StreamProgram(std::uint64_t seed, int streams, std::int64_t forget_each = 0)
      : random_(seed),
        cuda_({.seed = seed, .forget_each = forget_each}),
        base_(static_cast<char*>(cuda_.allocate(0, kCapacity))),
        pool_({.capacity = kCapacity, .alignment = 1_B}),
        order_(cuda_),
        sync_(cuda_.create_event(0, false)) {
    for (int i = 0; i < streams; ++i) {
      streams_.push_back(i == 0 ? Stream() : cuda_.new_stream());
    }
  }
  ~StreamProgram() {
    cuda_.synchronize_all();
    cuda_.release(0, base_);
  }

  // Returns the number of kernels that found wrong bytes.
  int run(int steps) {
    for (int i = 0; i < steps; ++i) {
      step();
      order_.check();
      cuda_.run(static_cast<int>(random_() % 4));
    }
    cuda_.synchronize_all();
    return wrong_;
  }
  [[nodiscard]] std::int64_t waits() const { return order_.waits(); }
  [[nodiscard]] const FakeCuda& cuda() const { return cuda_; }

 private:
  static constexpr Bytes kCapacity{256};
  struct Tensor {
    BlockId block;
    char content = 0;
    Stream made_on;
    std::vector<Stream> synced;  // streams that the program has made wait for the value
  };

  void step() {
    switch (random_() % 9) {
      case 0:
      case 1:
        return make();
      case 2:
      case 3:
      case 4:
        return read();
      case 5:
        return drop();
      case 6:
        return replay();
      case 8:
        return overwrite();
      default:
        return move();
    }
  }

  Stream any_stream() { return streams_[random_() % streams_.size()]; }
  [[nodiscard]] Range range(BlockId block) const {
    return {.offset = pool_.offset(block), .size = pool_.size(block)};
  }
  Tensor* any_tensor() {
    return tensors_.empty() ? nullptr : &tensors_[random_() % tensors_.size()];
  }
  void fill(Range range, char content, Stream stream) {
    char* const begin = base_ + range.offset.count();
    cuda_.launch(stream, [=] { std::fill_n(begin, range.size.count(), content); });
  }

  void make() {
    const Bytes size(1 + static_cast<std::int64_t>(random_() % 48));
    const auto block = pool_.allocate(size, random_() % 2 == 0 ? Zone::kLow : Zone::kHigh);
    if (!block) {
      return drop();
    }
    // Memory may be requested on one stream and filled on another, once the streams are
    // synchronized.
    const Stream asked = any_stream();
    const Stream stream = any_stream();
    if (asked != stream) {
      cuda_.record(sync_, asked);
      cuda_.wait_surely(stream, sync_);
    }
    order_.take(range(*block), asked);
    order_.use(range(*block), stream);
    fill(range(*block), ++content_, stream);
    tensors_.push_back({*block, content_, stream, {stream}});
  }

  // The program orders its own work: the writing stream waits for all streams that read the value.
  void overwrite() {
    Tensor* const tensor = any_tensor();
    if (tensor == nullptr) {
      return;
    }
    const Stream stream = any_stream();
    for (const Stream other : tensor->synced) {
      if (other != stream) {
        cuda_.record(sync_, other);
        cuda_.wait_surely(stream, sync_);
      }
    }
    tensor->made_on = stream;
    tensor->synced = {stream};
    tensor->content = ++content_;
    order_.use(range(tensor->block), stream);
    fill(range(tensor->block), tensor->content, stream);
  }

  void read() {
    Tensor* const tensor = any_tensor();
    if (tensor == nullptr) {
      return;
    }
    const Stream stream = any_stream();
    if (std::find(tensor->synced.begin(), tensor->synced.end(), stream) == tensor->synced.end()) {
      cuda_.record(sync_, tensor->made_on);
      cuda_.wait_surely(stream, sync_);
      tensor->synced.push_back(stream);
    }
    const Range where = range(tensor->block);
    order_.use(where, stream);
    cuda_.launch(stream, [this, where, content = tensor->content] {
      const char* const begin = base_ + where.offset.count();
      wrong_ +=
          std::count(begin, begin + where.size.count(), content) == where.size.count() ? 0 : 1;
    });
  }

  void drop() {
    if (Tensor* const tensor = any_tensor()) {
      pool_.free(tensor->block);
      *tensor = tensors_.back();
      tensors_.pop_back();
    }
  }

  // Evicts a value and replays it at another address.
  void replay() {
    Tensor* const tensor = any_tensor();
    if (tensor == nullptr) {
      return;
    }
    const Bytes size = pool_.size(tensor->block);
    pool_.free(tensor->block);
    const Stream stream = any_stream();
    tensor->block = *pool_.allocate(size, Zone::kHigh);
    order_.take(range(tensor->block), stream);
    fill(range(tensor->block), tensor->content, stream);
  }

  void move() {
    Tensor* const tensor = any_tensor();
    if (tensor == nullptr) {
      return;
    }
    const Range from = range(tensor->block);
    const auto to = pool_.allocate(from.size, Zone::kLow);
    if (!to) {
      return;
    }
    const Stream stream = any_stream();
    order_.take(from, stream);
    order_.take(range(*to), stream);
    cuda_.copy(stream, base_ + pool_.offset(*to).count(), base_ + from.offset.count(), from.size);
    pool_.free(tensor->block);
    tensor->block = *to;
  }

  std::mt19937_64 random_;
  FakeCuda cuda_;
  char* base_;
  Pool pool_;
  StreamOrder order_;
  Event sync_;
  std::vector<Stream> streams_;
  std::vector<Tensor> tensors_;
  char content_ = 0;
  int wrong_ = 0;
};

TEST(StreamOrder, EveryKernelReadsTheRightBytes) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    StreamProgram program(seed, 2 + static_cast<int>(seed % 4));
    EXPECT_EQ(program.run(300), 0) << "seed " << seed;
    EXPECT_EQ(program.cuda().synchronizations(), 0) << "the host waited";
  }
}

TEST(StreamOrder, OneStreamNeedsNoWaits) {
  StreamProgram program(7, 1);
  EXPECT_EQ(program.run(2000), 0);
  EXPECT_EQ(program.waits(), 0);
  EXPECT_EQ(program.cuda().waits(), 0);
}

// A missing wait matters only if the streams are close in time. One of five waits is dropped, in
// programs with some hundreds of waits.
TEST(StreamOrder, MissingWaitsAreDetected) {
  int shown = 0;
  constexpr int kRuns = 200;
  for (std::uint64_t seed = 0; seed < kRuns; ++seed) {
    StreamProgram program(seed, 3, 5);
    shown += program.run(300) > 0 ? 1 : 0;
  }
  EXPECT_GT(shown, kRuns / 2);
}

class TwoStreams : public testing::Test {
 protected:
  FakeCuda cuda_{{.seed = 1}};
  StreamOrder order_{cuda_};
  Stream one_;
  Stream two_ = cuda_.new_stream();
  Range range_{.offset = 0_B, .size = 512_B};
};

TEST_F(TwoStreams, TakingABlockWaitsForItsPreviousStream) {
  order_.take(range_, one_);
  order_.take(range_, two_);
  EXPECT_EQ(order_.waits(), 1);
  order_.take(range_, two_);
  EXPECT_EQ(order_.waits(), 1);
}

// Work that the first stream did before a second one existed has no recorded ranges.
TEST_F(TwoStreams, ANewStreamThatUsesWaitsForTheFirst) {
  order_.take(range_, one_);
  order_.use(range_, two_);
  EXPECT_EQ(order_.waits(), 1);
  order_.use(range_, two_);
  EXPECT_EQ(order_.waits(), 1);
}

TEST_F(TwoStreams, WorkOfTheEngineIsWaitedForOnce) {
  order_.take({.offset = 512_B, .size = 512_B}, two_);
  order_.take(range_, one_);
  const std::int64_t before = order_.waits();
  order_.use(range_, two_);
  order_.use(range_, two_);
  EXPECT_EQ(order_.waits(), before + 1);
  order_.use(range_, one_);
  EXPECT_EQ(order_.waits(), before + 1);
}

// The default streams of two devices are two streams.
TEST(StreamOrder, DistinguishesDevices) {
  FakeCuda cuda({.seed = 1, .devices = 2});
  StreamOrder order(cuda);
  const Range range{.offset = 0_B, .size = 512_B};
  order.take(range, {.handle = nullptr, .device = 0});
  order.use(range, {.handle = nullptr, .device = 1});
  const std::int64_t before = order.waits();
  order.take(range, {.handle = nullptr, .device = 0});
  EXPECT_EQ(order.waits(), before + 1);
}

TEST_F(TwoStreams, AFailedWaitIsRetried) {
  order_.take(range_, one_);
  for (int call = 0; call < 2; ++call) {
    cuda_.fail_records(1);
    EXPECT_THROW(order_.use(range_, two_), CudaError);
    order_.check();
  }
  EXPECT_EQ(order_.waits(), 0);
  order_.use(range_, two_);
  EXPECT_GT(order_.waits(), 0);
  cuda_.fail_records(1);
  EXPECT_THROW(order_.take(range_, one_), CudaError);
  const std::int64_t before = order_.waits();
  order_.take(range_, one_);
  EXPECT_EQ(order_.waits(), before + 1);
}

TEST_F(TwoStreams, AStreamOfACaptureCannotBeWaitedFor) {
  order_.take(range_, one_);
  cuda_.begin_capture(one_);
  EXPECT_THROW(order_.take(range_, two_), CudaError);
  cuda_.end_capture(one_);
  order_.take(range_, two_);
  order_.check();
}

TEST_F(TwoStreams, UsersAreWaitedForToo) {
  order_.take(range_, one_);
  order_.use(range_, two_);  // as record_stream does
  const std::int64_t before = order_.waits();
  order_.take(range_, one_);
  EXPECT_EQ(order_.waits(), before + 1);
}

TEST_F(TwoStreams, PartsOfARangeHaveTheirOwnUsers) {
  order_.take(range_, one_);
  order_.take({.offset = 0_B, .size = 256_B}, two_);
  const std::int64_t before = order_.waits();
  order_.take({.offset = 256_B, .size = 256_B}, one_);
  EXPECT_EQ(order_.waits(), before);
  order_.take(range_, one_);
  EXPECT_EQ(order_.waits(), before + 1);
  order_.check();
}

}  // namespace
}  // namespace recoup::detail::cuda
