#include "csrc/paging/access_patterns.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <set>
#include <vector>

namespace recoup::detail {
namespace {

constexpr std::int64_t kStep = 4096;  // bytes of a block
constexpr AccessPatterns::Limits kLimits{.at_once = 255, .together = 2000};

// A window without an end: how often accesses miss, and how many blocks were predicted in vain.
class Reader {
 public:
  explicit Reader(std::int64_t size = std::int64_t{1} << 40) : size_(size) {
    patterns_.reset(kStep);
  }
  void access(std::int64_t offset, std::int32_t thread = 1, std::int64_t tensor = 0) {
    const auto address = [tensor](std::int64_t at) { return (tensor << 40) + at / kStep; };
    used_.insert(address(offset));
    if (present_.contains(address(offset))) {
      return;
    }
    ++misses_;
    const auto [stride, count] =
        patterns_.miss({.thread = thread, .tensor = tensor, .writes = false}, offset, kLimits);
    EXPECT_LE(count, kLimits.at_once);
    for (std::int64_t i = 0; i <= count; ++i) {
      if (const std::int64_t at = offset + i * stride; at >= 0 && at < size_) {
        present_.insert(address(at));
      }
    }
  }
  [[nodiscard]] int misses() const { return misses_; }
  [[nodiscard]] std::size_t in_vain() const { return present_.size() - used_.size(); }

 private:
  const std::int64_t size_;  // of each tensor, in bytes
  AccessPatterns patterns_;
  std::set<std::int64_t> present_;
  std::set<std::int64_t> used_;
  int misses_ = 0;
};

TEST(AccessPatterns, ASequenceMissesFewTimesInEitherDirection) {
  for (const bool backward : {false, true}) {
    Reader reader;
    for (std::int64_t i = 0; i < 4000; ++i) {
      reader.access((backward ? 4000 - i : i) * kStep + 100);
    }
    EXPECT_LE(reader.misses(), 4000 / 256 + 6) << backward;
    EXPECT_LE(reader.in_vain(), 256) << backward;
  }
}

TEST(AccessPatterns, TheColumnsOfAMatrix) {
  // A row has no whole number of blocks.
  constexpr std::int64_t kRow = 64'000;
  Reader reader(500 * kRow);
  for (std::int64_t column = 0; column < kRow; column += 256) {
    for (std::int64_t row = 0; row < 500; ++row) {
      reader.access(row * kRow + column);
    }
  }
  // 7,813 blocks.
  EXPECT_LE(reader.misses(), 1700);
  EXPECT_EQ(reader.in_vain(), 0);
}

TEST(AccessPatterns, ManyStreamsAtTheSameTime) {
  Reader reader;
  for (std::int64_t i = 0; i < 1000; ++i) {
    for (std::int32_t thread = 0; thread < 4; ++thread) {
      reader.access((thread * 1000 + i) * kStep, thread, 0);
      reader.access((thread * 1000 + i) * 3 * kStep, thread, 1);
      reader.access((8000 - thread * 1000 - i) * kStep, thread, 2);
    }
  }
  EXPECT_LE(reader.misses(), 12'000 / 50);
}

TEST(AccessPatterns, SequencesInOneTensorOnOneThread) {
  Reader reader;
  for (std::int64_t i = 0; i < 1000; ++i) {
    for (const std::int64_t plane : {0, 5000, 17'000}) {
      reader.access((plane + i) * kStep);
    }
  }
  EXPECT_LE(reader.misses(), 3000 / 30);
}

TEST(AccessPatterns, RandomAccessesPredictLittle) {
  std::mt19937_64 random(3);
  Reader reader;
  for (int i = 0; i < 20'000; ++i) {
    reader.access(static_cast<std::int64_t>(random() % 10'000'000) * kStep);
  }
  EXPECT_LE(reader.in_vain(), 200);
}

TEST(AccessPatterns, TheLimitOfAllStreamsIsShared) {
  AccessPatterns patterns;
  patterns.reset(kStep);
  std::int64_t most = 0;
  for (std::int64_t i = 0; i < 50; ++i) {
    for (std::int32_t thread = 0; thread < 10; ++thread) {
      const auto [stride, count] = patterns.miss({.thread = thread, .tensor = 0, .writes = false},
                                                 i * 7 * kStep, {.at_once = 100, .together = 40});
      most = i > 3 ? std::max(most, count) : most;
    }
  }
  EXPECT_LE(most, 40 / 5);
}

}  // namespace
}  // namespace recoup::detail
