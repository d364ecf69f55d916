// Compares the pool with an oracle, and tests the cases that its design aims at.
#include "csrc/pool/pool.h"

#include <gtest/gtest.h>

#include <random>

#include "csrc/pool/compactor.h"
#include "recoup/errors.h"
#include "tests/core/support/pool_oracle.h"
#include "tests/core/support/seeds.h"

namespace recoup::detail {
namespace {

std::vector<Tile> tiles_of(const Pool& pool) {
  std::vector<Tile> tiles;
  BlockId before;
  for (BlockId id = pool.first(); id.valid(); id = pool.next(id)) {
    EXPECT_EQ(pool.previous(id), before);
    const BlockView view = pool.view(id);
    tiles.push_back({.offset = view.offset.count(),
                     .size = view.size.count(),
                     .free = view.free,
                     .owner = view.owner});
    before = id;
  }
  return tiles;
}

std::size_t free_blocks(const Pool& pool) {
  std::size_t count = 0;
  for (const Tile& tile : tiles_of(pool)) {
    count += tile.free ? 1U : 0U;
  }
  return count;
}

// Applies the same operations to a pool and its oracle.
class Twin {
 public:
  Twin(const PoolOptions& options, std::uint64_t seed)
      : pool_(options),
        oracle_(options),
        random_(seed),
        alignment_(options.alignment.count()),
        most_(options.capacity.count()) {}

  void step() {
    const std::int64_t dice = below(100);
    if (dice < 40 || blocks_.empty()) {
      allocate();
    } else if (dice < 50) {
      allocate_at();
    } else if (dice < 75) {
      free();
    } else if (dice < 90) {
      move();
    } else if (dice < 98) {
      const ValueId owner(static_cast<std::uint32_t>(below(4)));
      const Held& held = blocks_[some_block()];
      pool_.set_owner(held.id, owner);
      oracle_.set_owner(held.offset, owner);
    } else {
      most_ += below(20 * alignment_);
      const std::int64_t end = below(2) == 0 ? most_ : below(most_ + 1);
      pool_.set_end(Bytes(end));
      oracle_.set_end(end);
    }
  }
  void free_everything() {
    while (!blocks_.empty()) {
      free();
      compare();
    }
  }

  void compare() {
    ASSERT_NO_THROW(pool_.check());
    ASSERT_EQ(tiles_of(pool_), oracle_.tiles());
    ASSERT_EQ(pool_.capacity().count(), oracle_.capacity());
    ASSERT_EQ(pool_.used().count(), oracle_.used());
    ASSERT_EQ(pool_.free_bytes(), pool_.capacity() - pool_.used());
    ASSERT_EQ(pool_.largest_free().count(), oracle_.largest_free());
    for (const Held& held : blocks_) {
      ASSERT_EQ(pool_.view(held.id).offset.count(), held.offset);
      ASSERT_EQ(pool_.find(Bytes(held.offset)), held.id);
      ASSERT_EQ(pool_.free_around(held.id).count(), oracle_.free_around(held.offset));
    }
    const auto even = [](ValueId owner) { return owner.index() % 2 == 0; };
    ASSERT_EQ(Compactor(pool_).largest_window(even).count(), oracle_.largest_window(even));
    // Only the first bytes of allocated blocks are found: neither free blocks nor addresses inside.
    std::size_t found = 0;
    for (std::int64_t at = 0; at < oracle_.capacity(); at += alignment_) {
      found += pool_.find(Bytes(at)) ? 1U : 0U;
      ASSERT_EQ(pool_.starts_segment(Bytes(at)), oracle_.starts_segment(at));
    }
    ASSERT_EQ(found, blocks_.size());
  }

 private:
  struct Held {
    BlockId id;
    std::int64_t offset;
  };

  std::int64_t below(std::int64_t end) {
    return std::uniform_int_distribution<std::int64_t>(0, end - 1)(random_);
  }
  std::size_t some_block() {
    return static_cast<std::size_t>(below(static_cast<std::int64_t>(blocks_.size())));
  }
  void allocate() {
    // Few distinct sizes, so that equal holes compete; some requests exceed the capacity.
    const std::int64_t size =
        below(10) == 0 ? 1 + below(oracle_.capacity() + 1) : 1 + below(12 * alignment_);
    const Zone zone = below(2) == 0 ? Zone::kLow : Zone::kHigh;
    const auto offset = oracle_.allocate(size, zone);
    const auto id = pool_.allocate(Bytes(size), zone);
    ASSERT_EQ(id.has_value(), offset.has_value()) << size << " bytes";
    if (id) {
      blocks_.push_back({*id, *offset});
      ASSERT_EQ(pool_.view(*id).size, pool_.round_up(Bytes(size)));
    }
  }
  void allocate_at() {
    const std::int64_t offset = below(oracle_.capacity() / alignment_ + 1) * alignment_;
    const std::int64_t size = 1 + below(12 * alignment_);
    const bool fits = oracle_.allocate_at(offset, size);
    const auto id = pool_.allocate_at(Bytes(offset), Bytes(size));
    ASSERT_EQ(id.has_value(), fits) << size << " bytes at " << offset;
    if (id) {
      blocks_.push_back({*id, offset});
      ASSERT_EQ(pool_.view(*id).size, pool_.round_up(Bytes(size)));
    }
  }
  void free() {
    const std::size_t at = some_block();
    pool_.free(blocks_[at].id);
    oracle_.free(blocks_[at].offset);
    blocks_[at] = blocks_.back();
    blocks_.pop_back();
  }
  void move() {
    Held& held = blocks_[some_block()];
    const std::vector<std::int64_t> targets = oracle_.targets(held.offset);
    const std::int64_t to =
        targets[static_cast<std::size_t>(below(static_cast<std::int64_t>(targets.size())))];
    pool_.move(held.id, Bytes(to));
    oracle_.move(held.offset, to);
    held.offset = to;
  }

  Pool pool_;
  PoolOracle oracle_;
  std::mt19937_64 random_;
  std::int64_t alignment_;
  std::int64_t most_;  // the highest end so far
  std::vector<Held> blocks_;
};

TEST(Pool, BehavesAsItsOracle) {
  for (std::uint64_t seed = 0; seed < seeds(300); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    const std::int64_t alignment = std::int64_t{1} << random() % 8;
    const auto units = [&](std::uint64_t most) {
      return Bytes(static_cast<std::int64_t>(1 + random() % most) * alignment);
    };
    PoolOptions options{.capacity = units(200), .alignment = Bytes(alignment)};
    // capacities and segments that are no multiples of the alignment are legal, too
    if (seed % 3 != 0) {
      options.segment_size = units(60) - Bytes(seed % 3 == 1 ? 0 : alignment / 2);
      options.capacity += Bytes(alignment / 2);
    }
    Twin twin(options, seed);
    for (int i = 0; i < 200 && !testing::Test::HasFatalFailure(); ++i) {
      twin.step();
      twin.compare();
    }
    twin.free_everything();
    if (testing::Test::HasFatalFailure()) {
      return;
    }
  }
}

// |aaaa..bb..cccc....|: kLow takes the lowest of the smallest holes, kHigh the highest.
TEST(Pool, TakesTheSmallestHoleThatIsLargeEnough) {
  Pool pool({.capacity = 18_B, .alignment = 1_B});
  std::vector<BlockId> blocks;
  for (const int size : {4, 2, 2, 2, 4}) {
    blocks.push_back(*pool.allocate(Bytes(size), Zone::kLow));
  }
  pool.free(blocks[1]);
  pool.free(blocks[3]);
  EXPECT_EQ(pool.largest_free(), 4_B);
  EXPECT_EQ(pool.view(*pool.allocate(1_B, Zone::kHigh)).offset, 9_B);
  EXPECT_EQ(pool.view(*pool.allocate(1_B, Zone::kHigh)).offset, 8_B);  // the smallest hole now
  EXPECT_EQ(pool.view(*pool.allocate(2_B, Zone::kHigh)).offset, 4_B);
  EXPECT_EQ(pool.view(*pool.allocate(3_B, Zone::kHigh)).offset, 15_B);
  EXPECT_EQ(pool.largest_free(), 1_B);
  EXPECT_FALSE(pool.allocate(2_B, Zone::kLow));
}

// MindSpore PyNative divides its memory into blocks of 1 GB. In each of 19 blocks the gap is too
// small for the next tensor, although the gaps together would hold a dozen.
TEST(Pool, NineteenBlocksFailWhereOneOfTheSameBytesFits) {
  const Bytes tensor = 600_MiB;
  for (const bool segments : {true, false}) {
    Pool pool({.capacity = 19_GiB, .segment_size = segments ? 1_GiB : 0_B});
    EXPECT_EQ(free_blocks(pool), segments ? 19U : 1U);
    for (int i = 0; i < 19; ++i) {
      ASSERT_TRUE(pool.allocate(tensor, Zone::kLow));
    }
    EXPECT_GT(pool.free_bytes().count(), 12 * tensor.count());
    EXPECT_EQ(pool.allocate(tensor, Zone::kLow).has_value(), !segments);
    EXPECT_EQ(pool.allocate(1_GiB + 1_B, Zone::kLow).has_value(), !segments);
    // Neither evictions nor moves help against a segment boundary.
    EXPECT_EQ(Compactor(pool).largest_window([](ValueId) { return true; }),
              segments ? 1_GiB : pool.capacity());
    EXPECT_NO_THROW(pool.check());
  }
}

// Parameters are allocated at low addresses and temporaries at high ones. When the temporaries are
// freed, in any order, a single free block must be left.
TEST(Pool, AfterAStepTheEvictableAreaIsOneFreeBlock) {
  for (std::uint64_t seed = 0; seed < seeds(100); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    Pool pool({.capacity = 64_KiB});
    const auto size = [&] { return Bytes(static_cast<std::int64_t>(1 + random() % 2000)); };
    for (std::uint64_t i = random() % 10; i > 0; --i) {
      ASSERT_TRUE(pool.allocate(size(), Zone::kLow));
    }
    for (int step = 0; step < 5; ++step) {
      std::vector<BlockId> temporary;
      for (int i = 0; i < 100; ++i) {
        if (const auto block = pool.allocate(size(), Zone::kHigh)) {
          temporary.push_back(*block);
        }
        if (!temporary.empty() && random() % 3 != 0) {
          std::swap(temporary[random() % temporary.size()], temporary.back());
          pool.free(temporary.back());
          temporary.pop_back();
        }
      }
      for (const BlockId block : temporary) {
        pool.free(block);
      }
      ASSERT_EQ(free_blocks(pool), 1U);
      ASSERT_EQ(pool.largest_free(), pool.free_bytes());
    }
  }
}

// |aa.bb#..|: without a and b, six bytes in a row would be free.
TEST(Pool, TheLargestWindowEndsAtAnImmovableBlock) {
  Pool pool({.capacity = 9_B, .alignment = 1_B});
  std::vector<BlockId> blocks;
  std::uint32_t owner = 0;
  for (const int size : {2, 1, 2, 1}) {
    blocks.push_back(*pool.allocate(Bytes(size), Zone::kLow));
    pool.set_owner(blocks.back(), ValueId(++owner));
  }
  pool.free(blocks[1]);
  const auto window = [&](std::uint32_t stays) {
    return Compactor(pool).largest_window([=](ValueId each) { return each != ValueId(stays); });
  };
  EXPECT_EQ(window(4), 5_B);
  EXPECT_EQ(window(3), 4_B);
  EXPECT_EQ(window(1), 7_B);
  EXPECT_EQ(window(0), 9_B);
  EXPECT_EQ(pool.largest_free(), 3_B);
}

TEST(Pool, GrowthJoinsTheFreeRoomAtTheEnd) {
  Pool pool({.capacity = 100_B, .segment_size = 128_B, .alignment = 4_B});
  const BlockId low = *pool.allocate(60_B, Zone::kLow);
  pool.set_end(300_B);
  EXPECT_EQ(tiles_of(pool), (std::vector<Tile>{{.offset = 0, .size = 60},
                                               {.offset = 60, .size = 68, .free = true},
                                               {.offset = 128, .size = 128, .free = true},
                                               {.offset = 256, .size = 44, .free = true}}));
  pool.free(low);
  EXPECT_EQ(pool.largest_free(), 128_B);
}

TEST(Pool, EndsWithTheLastBlockBeyondItsEnd) {
  Pool pool({.capacity = 100_B, .alignment = 4_B});
  const BlockId low = *pool.allocate(20_B, Zone::kLow);
  const BlockId high = *pool.allocate(8_B, Zone::kHigh);
  pool.set_end(60_B);
  EXPECT_EQ(pool.capacity(), 100_B);
  EXPECT_EQ(pool.largest_free(), 72_B);
  pool.free(high);
  EXPECT_EQ(pool.capacity(), 100_B);
  pool.set_end(60_B);
  EXPECT_EQ(pool.capacity(), 60_B);
  EXPECT_EQ(pool.largest_free(), 40_B);
  pool.set_end(10_B);
  EXPECT_EQ(pool.capacity(), 20_B);
  pool.free(low);
  pool.set_end(10_B);
  EXPECT_EQ(pool.capacity(), 8_B);
  pool.set_end(0_B);
  EXPECT_FALSE(pool.first().valid());
}

TEST(Pool, RefusesInvalidCalls) {
  Pool pool({.capacity = 8_B, .alignment = 1_B});
  const BlockId a = *pool.allocate(2_B, Zone::kLow);
  const BlockId b = *pool.allocate(2_B, Zone::kLow);
  EXPECT_THROW(pool.allocate(0_B, Zone::kLow), InternalError);
  pool.free(a);
  EXPECT_THROW(pool.free(a), InternalError);
  EXPECT_THROW(pool.move(b, 7_B), InternalError);
  EXPECT_THROW(Pool({.capacity = 8_B, .alignment = 3_B}), InternalError);
}

TEST(Pool, MayHaveACapacityOfZero) {
  Pool pool({.capacity = 63_B});
  EXPECT_FALSE(pool.first().valid());
  EXPECT_FALSE(pool.allocate(1_B, Zone::kHigh));
  EXPECT_EQ(pool.largest_free(), 0_B);
  EXPECT_FALSE(Compactor(pool).plan(1_B, [](ValueId) { return true; }));
  EXPECT_NO_THROW(pool.check());
  pool.set_end(64_B);
  EXPECT_TRUE(pool.allocate(1_B, Zone::kHigh));
}

}  // namespace
}  // namespace recoup::detail
