// Layouts of random steps, against a comparison of every pair of lives.
#include "csrc/steps/place/step_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "tests/core/support/seeds.h"

namespace recoup::detail {
namespace {

constexpr std::int64_t kStepUnit = 64;

// A step: blocks from before it, some of which die, then allocations and frees in random order. A
// block that dies is replaced by one of its size.
class RandomStep {
 public:
  explicit RandomStep(std::uint64_t seed) : random_(seed) {
    const int before = 1 + below(8);
    for (int i = 0; i < before; ++i) {
      take(size());
    }
    blocks_.before.resize(static_cast<std::size_t>(before));
    std::vector<std::size_t> dying;
    for (std::size_t i = 0; i < blocks_.before.size(); ++i) {
      if (below(2) == 0) {
        dying.push_back(i);
      }
    }
    std::vector<std::size_t> replaced = dying;
    for (int n = 20 + below(60); n > 0; --n) {
      if (!dying.empty() && below(4) == 0) {
        free(dying.back());
        dying.pop_back();
      } else if (!replaced.empty() && below(4) == 0) {  // maybe before its predecessor dies
        blocks_.before[replaced.back()].successor = static_cast<std::uint32_t>(taken_.size());
        take(sizes_[replaced.back()]);
        replaced.pop_back();
      } else if (!own_.empty() && below(2) == 0) {
        const auto at = static_cast<std::size_t>(below(static_cast<int>(own_.size())));
        free(own_[at]);
        own_.erase(own_.begin() + static_cast<std::ptrdiff_t>(at));
      } else {
        own_.push_back(taken_.size());
        take(size());
      }
    }
    for (const std::size_t life : own_) {
      free(life);
    }
    for (const std::size_t life : dying) {
      free(life);
    }
    blocks_.lives = log_.lives();
    blocks_.sections = log_.sections();
    blocks_.alignment = Bytes(kStepUnit);
  }

  // Places of the blocks from before the step, one after another with gaps, and the pool's end.
  void place(std::int64_t end) {
    std::int64_t at = 0;
    for (StepBlocks::Before& before : blocks_.before) {
      at += kStepUnit * below(4);
      before.at = Bytes(at);
      before.fixed = below(6) == 0;
      at += sizes_[static_cast<std::size_t>(&before - blocks_.before.data())].count();
    }
    blocks_.end = Bytes(std::max(end, at));
  }

  [[nodiscard]] const StepBlocks& blocks() const { return blocks_; }
  // The most bytes that are taken at one time.
  [[nodiscard]] std::int64_t peak() const {
    std::int64_t most = 0;
    for (std::int32_t s = 0; s < blocks_.sections; ++s) {
      std::int64_t sum = 0;
      for (const BlockLog::Life& life : blocks_.lives) {
        sum += lives_in(life, s) ? life.size.count() : 0;
      }
      most = std::max(most, sum);
    }
    return most;
  }
  static bool lives_in(const BlockLog::Life& life, std::int32_t section) {
    return life.lower <= section && (life.survives() || section < life.upper);
  }

 private:
  int below(int limit) { return static_cast<int>(random_() % static_cast<std::uint64_t>(limit)); }
  Bytes size() { return Bytes(kStepUnit * (1 + below(20))); }
  void take(Bytes size) {
    sizes_.push_back(size);
    taken_.emplace_back(static_cast<std::uint32_t>(taken_.size()));
    log_.on_take(taken_.back(), size);
  }
  void free(std::size_t life) { log_.on_free(taken_[life]); }

  std::mt19937_64 random_;
  BlockLog log_;
  std::vector<BlockId> taken_;  // by life
  std::vector<Bytes> sizes_;    // by life
  std::vector<std::size_t> own_;
  StepBlocks blocks_;
};

// Two lives share addresses in a section in which both are taken.
bool collide(const StepBlocks& blocks, std::span<const PlannedPlace> places, std::size_t a,
             std::size_t b) {
  const BlockLog::Life& first = blocks.lives[a];
  const BlockLog::Life& second = blocks.lives[b];
  const bool together = first.lower < (second.survives() ? blocks.sections : second.upper) &&
                        second.lower < (first.survives() ? blocks.sections : first.upper);
  const auto meet = [&](PoolOffset x, PoolOffset y) {
    return x < y + second.size && y < x + first.size;
  };
  // Of two that take two places in turn, the second takes the other one.
  const bool in_turn = places[a].other != places[a].at && places[a].at == places[b].at;
  return together && meet(places[a].at, in_turn ? places[b].other : places[b].at);
}

void check(const StepBlocks& blocks, std::span<const PlannedPlace> places) {
  ASSERT_EQ(places.size(), blocks.lives.size());
  for (std::size_t a = 0; a < places.size(); ++a) {
    ASSERT_GE(places[a].at, Bytes(0));
    ASSERT_EQ(places[a].at.count() % kStepUnit, 0);
    ASSERT_LE(places[a].at + blocks.lives[a].size, blocks.end);
    for (std::size_t b = 0; b < a; ++b) {
      ASSERT_FALSE(collide(blocks, places, a, b)) << "lives " << a << " and " << b;
    }
  }
  for (std::size_t life = 0; life < blocks.before.size(); ++life) {
    const StepBlocks::Before& before = blocks.before[life];
    if (before.fixed && blocks.lives[life].survives()) {
      ASSERT_EQ(places[life].at, before.at);
    }
  }
}

// Whether each block that survives the step lies where its counterpart from the last run lay.
bool is_joined(const StepBlocks& blocks, std::span<const PlannedPlace> places) {
  for (std::size_t life = 0; life < blocks.before.size(); ++life) {
    const std::uint32_t next = blocks.before[life].successor;
    if (next != 0 && !alternates(blocks, life) && places[life].at != places[next].at) {
      return false;
    }
  }
  return true;
}

TEST(StepLayout, EveryLayoutIsValid) {
  int found = 0;
  int tight = 0;
  int joined = 0;
  for (std::uint64_t seed = 0; seed < seeds(600) && !testing::Test::HasFatalFailure(); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    RandomStep step(seed);
    const std::int64_t peak = step.peak();
    step.place(peak + peak * static_cast<std::int64_t>(seed % 20) / 10);
    if (const auto places = lay_out(step.blocks(), 2000, [] {})) {
      ++found;
      tight += step.blocks().end.count() <= peak + peak / 10 ? 1 : 0;
      joined += is_joined(step.blocks(), *places) ? 1 : 0;
      check(step.blocks(), *places);
    }
  }
  EXPECT_GT(found, seeds(300));
  EXPECT_GT(tight, seeds(5));
  EXPECT_GT(joined, found * 9 / 10);
}

// Three blocks are alive in pairs, and the third is the first one of the next run: two places are
// enough only if it moves in between.
TEST(StepLayout, ARunBeginsWithMovesIfItMust) {
  BlockLog log;
  log.on_take(BlockId(0), 64_B);
  log.on_take(BlockId(1), 64_B);
  log.on_free(BlockId(0));
  log.on_take(BlockId(2), 64_B);
  log.on_free(BlockId(1));
  log.on_take(BlockId(3), 64_B);
  log.on_free(BlockId(2));
  log.on_take(BlockId(4), 64_B);  // replaces block 1
  log.on_free(BlockId(3));
  log.on_take(BlockId(5), 64_B);  // replaces block 0
  StepBlocks blocks{.lives = log.lives(),
                    .before = {{.at = 0_B, .successor = 5}, {.at = 64_B, .successor = 4}},
                    .sections = log.sections(),
                    .end = 128_B,
                    .alignment = 64_B};
  const auto places = lay_out(blocks, 100, [] {});
  ASSERT_TRUE(places);
  check(blocks, *places);
  EXPECT_FALSE(is_joined(blocks, *places));
}

// A block that must not move lies in the middle: the others go to the larger range.
TEST(StepLayout, LeavesFixedBlocksWhereTheyAre) {
  BlockLog log;
  log.on_take(BlockId(0), 64_B);
  log.on_take(BlockId(1), 704_B);
  log.on_free(BlockId(1));
  StepBlocks blocks{.lives = log.lives(),
                    .before = {{.at = 320_B, .fixed = true}},
                    .sections = log.sections(),
                    .end = 1280_B,
                    .alignment = 64_B};
  const auto places = lay_out(blocks, 100, [] {});
  ASSERT_TRUE(places);
  EXPECT_EQ((*places)[0].at, 320_B);
  EXPECT_GE((*places)[1].at, 384_B);
  blocks.before[0].at = 640_B;
  EXPECT_FALSE(lay_out(blocks, 100, [] {}));
}

// Scattered blocks that stay are packed, so that the step's block fits.
TEST(StepLayout, PacksBlocksThatStay) {
  BlockLog log;
  log.on_take(BlockId(0), 64_B);
  log.on_take(BlockId(1), 64_B);
  log.on_take(BlockId(2), 1024_B);
  log.on_free(BlockId(2));
  const StepBlocks blocks{.lives = log.lives(),
                          .before = {{.at = 320_B}, {.at = 768_B}},
                          .sections = log.sections(),
                          .end = 1152_B,
                          .alignment = 64_B};
  const auto places = lay_out(blocks, 100, [] {});
  ASSERT_TRUE(places);
  check(blocks, *places);
}

}  // namespace
}  // namespace recoup::detail
