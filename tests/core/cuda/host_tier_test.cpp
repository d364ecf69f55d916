// A spill tier in pinned memory, concurrent with a program whose streams run late.
#include "csrc/cuda/host_tier.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "csrc/cuda/error.h"
#include "csrc/pool/pool.h"
#include "recoup/errors.h"
#include "tests/core/cuda/fake_cuda.h"

namespace recoup::detail::cuda {
namespace {

constexpr Bytes kExtent(8192);

class CudaHostTier : public testing::Test {
 protected:
  ~CudaHostTier() override {
    order_.reset();
    tier_.reset();
    EXPECT_EQ(cuda_.pinned(), 0_B);
    cuda_.release(0, arena_);
  }

  HostTier& start(Bytes size) {
    tier_.emplace(cuda_, 0, size, kExtent);
    order_.emplace(cuda_);
    return *tier_;
  }
  static Range range(std::int64_t at, Bytes size) { return {.offset = Bytes(at), .size = size}; }
  // A kernel of the program on its only stream.
  void fill(std::int64_t at, Bytes size, char value) {
    order_->take(range(at, size), {});
    cuda_.launch({}, [to = arena_ + at, size, value] {
      std::memset(to, value, static_cast<std::size_t>(size.count()));
    });
  }
  // Whether all bytes of the range have the value after all work has finished.
  bool holds(std::int64_t at, Bytes size, char value) {
    cuda_.synchronize_all();
    return std::all_of(arena_ + at, arena_ + at + size.count(),
                       [value](char byte) { return byte == value; });
  }
  bool write(Bytes to, std::int64_t from, Bytes size) {
    tier_->begin_write(*order_, to, range(from, size), arena_ + from);
    return tier_->end_write(to);
  }
  void read(std::int64_t to, Bytes from, Bytes size) {
    tier_->begin_read(*order_, range(to, size), arena_ + to, from);
    tier_->end_read(from);
  }

  FakeCuda cuda_{{.seed = 3}};
  char* arena_ = static_cast<char*>(cuda_.allocate(0, 64_KiB));
  std::optional<HostTier> tier_;
  std::optional<StreamOrder> order_;  // destroyed before the tier
};

TEST_F(CudaHostTier, SpillsAndFetchesWithoutAHostWait) {
  HostTier& tier = start(64_KiB);
  fill(0, 4_KiB, 7);
  EXPECT_TRUE(write(0_B, 0, 4_KiB));
  fill(0, 4_KiB, 9);  // the block is reused at once
  read(8192, 0_B, 4_KiB);
  fill(16384, 4_KiB, 1);
  tier.check();
  EXPECT_EQ(cuda_.synchronizations(), 0);
  EXPECT_TRUE(holds(8192, 4_KiB, 7));
  EXPECT_TRUE(holds(0, 4_KiB, 9));
}

TEST_F(CudaHostTier, AValueMaySpanExtents) {
  HostTier& tier = start(64_KiB);
  fill(0, 20_KiB, 5);
  EXPECT_TRUE(write(4096_B, 0, 20_KiB));
  tier.check();
  fill(0, 20_KiB, 6);
  read(32768, 4096_B, 20_KiB);
  EXPECT_TRUE(holds(32768, 20_KiB, 5));
  EXPECT_EQ(tier.pinned(), 24_KiB);
}

TEST_F(CudaHostTier, AllocatesOnDemandUpToItsSize) {
  HostTier& tier = start(kExtent + kExtent + 4096_B);
  EXPECT_EQ(cuda_.pinned(), 0_B);
  fill(0, 4_KiB, 1);
  EXPECT_TRUE(write(0_B, 0, 4_KiB));
  EXPECT_EQ(cuda_.pinned(), kExtent);
  EXPECT_TRUE(write(4096_B, 0, 4_KiB));
  EXPECT_EQ(cuda_.pinned(), kExtent);
  EXPECT_TRUE(write(kExtent + kExtent, 0, 4_KiB));
  EXPECT_EQ(cuda_.pinned(), kExtent + 4096_B) << "the last extent ends where the tier does";
  EXPECT_THROW((void)write(kExtent + kExtent, 0, 8_KiB), InternalError);
  EXPECT_TRUE(write(kExtent, 0, 4_KiB));
  EXPECT_EQ(cuda_.pinned(), kExtent + kExtent + 4096_B);
  tier.check();
}

TEST_F(CudaHostTier, AWriteFailsIfTheHostHasNoMemory) {
  HostTier& tier = start(64_KiB);
  fill(0, 4_KiB, 3);
  EXPECT_TRUE(write(0_B, 0, 4_KiB));
  cuda_.set_pinned_limit(kExtent);
  EXPECT_FALSE(write(kExtent, 0, 4_KiB));
  EXPECT_FALSE(write(4096_B, 0, 8_KiB)) << "the second half has no memory";
  tier.check();
  read(8192, 0_B, 4_KiB);
  EXPECT_TRUE(holds(8192, 4_KiB, 3));
  cuda_.set_pinned_limit(64_KiB);
  EXPECT_TRUE(write(kExtent, 0, 4_KiB));
}

TEST_F(CudaHostTier, ADriverFailureLeavesNothingWritten) {
  HostTier& tier = start(64_KiB);
  fill(0, 20_KiB, 3);
  for (int copies = 0; copies < 3; ++copies) {
    cuda_.fail_copy_after(copies);
    EXPECT_FALSE(write(0_B, 0, 20_KiB));
    tier.check();
    EXPECT_THROW(tier.begin_read(*order_, range(0, 20_KiB), arena_, 0_B), InternalError);
  }
  cuda_.fail_records(1);
  EXPECT_FALSE(write(0_B, 0, 20_KiB));
  EXPECT_TRUE(write(0_B, 0, 20_KiB));
}

TEST_F(CudaHostTier, AFailedReadCanBeRetried) {
  HostTier& tier = start(64_KiB);
  fill(0, 20_KiB, 4);
  EXPECT_TRUE(write(0_B, 0, 20_KiB));
  for (int copies = 0; copies < 3; ++copies) {
    cuda_.fail_copy_after(copies);
    tier.begin_read(*order_, range(32768, 20_KiB), arena_ + 32768, 0_B);
    EXPECT_THROW(tier.end_read(0_B), CudaError);
    fill(32768, 20_KiB, 8);
    EXPECT_TRUE(holds(32768, 20_KiB, 8)) << "an abandoned copy wrote late";
    tier.check();
  }
  read(32768, 0_B, 20_KiB);
  EXPECT_TRUE(holds(32768, 20_KiB, 4));
}

// host |a a a a|: read late, then |b b| is written over half of it.
TEST_F(CudaHostTier, AnOffsetIsReusedWhileItsCopiesArePending) {
  for (int round = 0; round < 50; ++round) {
    start(64_KiB);
    fill(0, 8_KiB, 1);
    fill(8192, 4_KiB, 2);
    EXPECT_TRUE(write(0_B, 0, 8_KiB));
    read(16384, 0_B, 8_KiB);
    EXPECT_TRUE(write(4096_B, 8192, 4_KiB));
    read(32768, 4096_B, 4_KiB);
    cuda_.run(round % 7);
    EXPECT_TRUE(holds(16384, 8_KiB, 1)) << round;
    EXPECT_TRUE(holds(32768, 4_KiB, 2)) << round;
    tier_->check();
    order_.reset();
    tier_.reset();
  }
  EXPECT_EQ(cuda_.events(), 0);
}

TEST_F(CudaHostTier, AReadMustMatchAWrite) {
  HostTier& tier = start(64_KiB);
  fill(0, 8_KiB, 1);
  EXPECT_TRUE(write(0_B, 0, 8_KiB));
  EXPECT_THROW(tier.begin_read(*order_, range(0, 4_KiB), arena_, 0_B), InternalError);
  EXPECT_THROW(tier.begin_read(*order_, range(0, 4_KiB), arena_, 4096_B), InternalError);
  EXPECT_TRUE(write(4096_B, 0, 4_KiB));  // overwrites a part of the value at 0
  EXPECT_THROW(tier.begin_read(*order_, range(0, 8_KiB), arena_, 0_B), InternalError);
}

TEST_F(CudaHostTier, ReleasesAllResources) {
  const std::int64_t events = cuda_.events();
  start(64_KiB);
  fill(0, 4_KiB, 1);
  EXPECT_TRUE(write(0_B, 0, 4_KiB));
  read(8192, 0_B, 4_KiB);
  order_.reset();
  tier_.reset();
  EXPECT_EQ(cuda_.events(), events);
  EXPECT_EQ(cuda_.destroyed_streams(), 2);
  EXPECT_EQ(arena_[8192], 1) << "the destructor waits for the copy";
}

TEST_F(CudaHostTier, IsMeasured) {
  HostTier& tier = start(64_KiB);
  const std::optional<LinkSpeed> speed = tier.measure();
  ASSERT_TRUE(speed.has_value());
  EXPECT_GT(speed->out_ns_per_byte, 0);
  EXPECT_GT(speed->in_ns_per_byte, 0);
  EXPECT_GT(speed->copy_ns, 0);
  EXPECT_EQ(cuda_.allocated(0), 64_KiB) << "the arena";
  EXPECT_EQ(tier.pinned(), kExtent);
  tier.check();
}

TEST_F(CudaHostTier, IsNotMeasuredWithoutMemory) {
  HostTier& tier = start(64_KiB);
  cuda_.set_pinned_limit(0_B);
  EXPECT_FALSE(tier.measure().has_value());
  cuda_.set_pinned_limit(64_KiB);
  void* const all = cuda_.allocate(0, cuda_.memory(0).free);
  EXPECT_FALSE(tier.measure().has_value());
  cuda_.release(0, all);
}

// ---- random programs ----

// Values are made, read, spilled, fetched and dropped on two streams of the program. Blocks and
// slots are reused at once.
class TierProgram {
 public:
  TierProgram(std::uint64_t seed, std::int64_t forget_each)
      : random_(seed),
        cuda_({.seed = seed, .forget_each = forget_each}),
        arena_(static_cast<char*>(cuda_.allocate(0, kArena))),
        streams_{Stream{}, cuda_.new_stream()} {}
  ~TierProgram() {
    cuda_.synchronize_all();
    order_.reset();
    tier_.reset();
    cuda_.release(0, arena_);
  }
  TierProgram(const TierProgram&) = delete;
  TierProgram& operator=(const TierProgram&) = delete;

  // Returns the number of reads that differ from what was written.
  int run(int steps) {
    for (int step = 0; step < steps; ++step) {
      act();
      cuda_.run(static_cast<int>(random_() % 5));
      tier_->check();
      order_->check();
    }
    for (Value& value : values_) {
      if (!value.block) {
        fetch(value);
      }
      if (value.block) {
        read(value);
      }
    }
    cuda_.synchronize_all();
    return wrong_;
  }
  [[nodiscard]] int fetches() const { return fetches_; }
  [[nodiscard]] int failures() const { return failures_; }

 private:
  static constexpr Bytes kArena{64 << 10};
  static constexpr Bytes kTier{40 << 10};
  struct Value {
    Bytes size;
    char content;
    std::optional<BlockId> block;
    std::optional<BlockId> slot;
  };

  void act() {
    const std::uint64_t kind = random_() % 8;
    if (values_.empty() || kind == 0) {
      make();
      return;
    }
    if (kind == 1 && random_() % 4 == 0) {
      cuda_.fail_copy_after(static_cast<int>(random_() % 3));
    }
    const std::size_t index = random_() % values_.size();
    Value& value = values_[index];
    if (kind == 2) {
      drop(index);
    } else if (!value.block) {
      fetch(value);
    } else if (kind < 6) {
      spill(value);
    } else {
      read(value);
    }
  }
  Stream stream() { return streams_[random_() % 2]; }
  [[nodiscard]] Range range(const Value& value) const {
    return {.offset = blocks_.offset(*value.block), .size = value.size};
  }
  [[nodiscard]] char* at(const Value& value) const {
    return arena_ + blocks_.offset(*value.block).count();
  }

  void make() {
    Value value{.size = Bytes(static_cast<std::int64_t>(random_() % 20 + 1) * 512),
                .content = static_cast<char>(random_()),
                .block = {},
                .slot = {}};
    value.block = blocks_.allocate(value.size, Zone::kLow);
    if (!value.block) {
      return;
    }
    const Stream here = stream();
    order_->take(range(value), here);
    cuda_.launch(here, [to = at(value), value] {
      std::memset(to, value.content, static_cast<std::size_t>(value.size.count()));
    });
    values_.push_back(value);
  }
  void read(const Value& value) {
    const Stream here = stream();
    order_->use(range(value), here);
    cuda_.launch(here, [this, from = at(value), value] {
      wrong_ += std::all_of(from, from + value.size.count(),
                            [&](char byte) { return byte == value.content; })
                    ? 0
                    : 1;
    });
  }
  void spill(Value& value) {
    value.slot = slots_.allocate(value.size, Zone::kLow);
    if (!value.slot) {
      return;
    }
    const Bytes place = slots_.offset(*value.slot);
    tier_->begin_write(*order_, place, range(value), at(value));
    if (tier_->end_write(place)) {
      blocks_.free(*std::exchange(value.block, std::nullopt));
    } else {
      ++failures_;
      slots_.free(*std::exchange(value.slot, std::nullopt));
    }
  }
  void fetch(Value& value) {
    value.block = blocks_.allocate(value.size, Zone::kLow);
    if (!value.block) {
      return;
    }
    const Bytes place = slots_.offset(*value.slot);
    tier_->begin_read(*order_, range(value), at(value), place);
    try {
      tier_->end_read(place);
      slots_.free(*std::exchange(value.slot, std::nullopt));
      ++fetches_;
    } catch (const CudaError&) {
      ++failures_;
      blocks_.free(*std::exchange(value.block, std::nullopt));
    }
  }
  void drop(std::size_t index) {
    if (values_[index].block) {
      blocks_.free(*values_[index].block);
    }
    if (values_[index].slot) {
      slots_.free(*values_[index].slot);
    }
    values_.erase(values_.begin() + static_cast<std::ptrdiff_t>(index));
  }

  std::mt19937_64 random_;
  FakeCuda cuda_;
  char* arena_;
  Stream streams_[2];
  std::optional<HostTier> tier_{std::in_place, cuda_, 0, kTier, kExtent};
  std::optional<StreamOrder> order_{std::in_place, cuda_};
  Pool blocks_{PoolOptions{.capacity = kArena, .segment_size = 0_B, .alignment = 512_B}};
  Pool slots_{PoolOptions{.capacity = kTier, .segment_size = 0_B, .alignment = 4096_B}};
  std::vector<Value> values_;
  int wrong_ = 0;
  int fetches_ = 0;
  int failures_ = 0;
};

TEST(CudaHostTierRandom, EveryReadReturnsTheWrittenBytes) {
  int fetches = 0;
  int failures = 0;
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    TierProgram program(seed, 0);
    EXPECT_EQ(program.run(400), 0) << "seed " << seed;
    fetches += program.fetches();
    failures += program.failures();
  }
  EXPECT_GT(fetches, 3000);
  EXPECT_GT(failures, 300);
}

TEST(CudaHostTierRandom, AMissingWaitIsDetected) {
  int noticed = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    noticed += TierProgram(seed, 5).run(400) > 0 ? 1 : 0;
  }
  EXPECT_GT(noticed, 50);
}

}  // namespace
}  // namespace recoup::detail::cuda
