#include "csrc/base/flat_map.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace recoup::detail {
namespace {

// Offsets are drawn from `keys`, which are few, so that keys are erased and inserted again.
void compare_with_std_map(std::mt19937_64& random, const std::vector<std::int64_t>& keys,
                          int steps) {
  FlatMap<BlockId> map;
  std::map<std::int64_t, BlockId> oracle;
  const std::uint64_t inserts = 2 + random() % 7;  // out of ten steps
  for (int step = 0; step < steps; ++step) {
    const std::int64_t offset = keys[random() % keys.size()];
    const bool known = oracle.contains(offset);
    if (random() % 10 < inserts && !known) {
      const BlockId block(static_cast<std::uint32_t>(random() % 1000));
      map.insert(offset, block);
      oracle[offset] = block;
    } else if (known) {
      map.erase(offset);
      oracle.erase(offset);
    }
    ASSERT_EQ(map.size(), oracle.size());
    if (step % 16 == 0 || step + 1 == steps) {
      for (const std::int64_t key : keys) {
        const auto expected = oracle.find(key);
        ASSERT_EQ(map.find(key),
                  expected == oracle.end() ? std::nullopt : std::optional(expected->second));
      }
    }
  }
}

TEST(FlatMap, BehavesAsAMap) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    // Adjacent blocks, blocks of 2 MiB, and random offsets: each has another hash pattern.
    const std::int64_t stride = std::vector<std::int64_t>{64, 2 << 20, 0}[seed % 3];
    std::vector<std::int64_t> keys;
    for (std::uint64_t i = 20 + random() % 200; i > 0; --i) {
      keys.push_back(stride == 0 ? static_cast<std::int64_t>(random() >> 20)
                                 : static_cast<std::int64_t>(i - 1) * stride);
    }
    compare_with_std_map(random, keys, 600);
    if (HasFatalFailure()) {
      return;
    }
  }
}

// A full table of 64 slots in which all keys share a few home slots: probes wrap around the end,
// and an erasure must shift back exactly the keys that would become unreachable.
TEST(FlatMap, ErasesAmongKeysThatCollide) {
  const auto home = [](std::int64_t offset) {  // as in csrc/base/flat_map.h
    return (static_cast<std::uint64_t>(offset) * 0x9e3779b97f4a7c15ULL >> 32) & 63;
  };
  std::vector<std::int64_t> colliding;
  for (std::int64_t offset = 0; colliding.size() < 32; offset += 64) {
    if (home(offset) >= 60 || home(offset) == 0) {
      colliding.push_back(offset);
    }
  }
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    compare_with_std_map(random, colliding, 600);
    if (HasFatalFailure()) {
      return;
    }
  }
}

TEST(FlatMap, KeepsEverythingWhenItGrows) {
  FlatMap<BlockId> map;
  constexpr std::uint32_t kMany = 100'000;
  for (std::uint32_t i = 0; i < kMany; ++i) {
    map.insert(std::int64_t{i} * 512, BlockId(i));
  }
  EXPECT_EQ(map.size(), kMany);
  for (std::uint32_t i = 0; i < kMany; ++i) {
    ASSERT_EQ(map.find(std::int64_t{i} * 512), BlockId(i));
    ASSERT_FALSE(map.find(std::int64_t{i} * 512 + 64));
  }
  for (std::uint32_t i = 0; i < kMany; i += 2) {
    map.erase(std::int64_t{i} * 512);
  }
  for (std::uint32_t i = 0; i < kMany; ++i) {
    ASSERT_EQ(map.find(std::int64_t{i} * 512).has_value(), i % 2 == 1);
  }
}

TEST(FlatMap, HoldsOffsetZero) {
  FlatMap<BlockId> map;
  EXPECT_FALSE(map.find(0));
  map.insert(0, BlockId(7));
  EXPECT_EQ(map.find(0), BlockId(7));
  map.erase(0);
  EXPECT_FALSE(map.find(0));
  EXPECT_EQ(map.size(), 0U);
}

}  // namespace
}  // namespace recoup::detail
