// The range that blocks leave when they are freed, compared with a search over the whole pool.
#include "csrc/pool/cleared_range.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "csrc/pool/compactor.h"
#include "tests/core/support/seeds.h"

namespace recoup::detail {
namespace {

// A pool in which every letter of a drawing such as "aab..c" is one byte of a block, and '.' is
// free. Blocks are named by their letters.
class Drawn {
 public:
  explicit Drawn(const std::string& drawing, Bytes segment_size = Bytes(0))
      : pool_({.capacity = Bytes(static_cast<std::int64_t>(drawing.size())),
               .segment_size = segment_size,
               .alignment = 1_B}) {
    for (std::size_t at = 0; at < drawing.size();) {
      const std::size_t end = std::min(drawing.find_first_not_of(drawing[at], at), drawing.size());
      if (drawing[at] != '.') {
        const BlockId block = *pool_.allocate_at(Bytes(static_cast<std::int64_t>(at)),
                                                 Bytes(static_cast<std::int64_t>(end - at)));
        pool_.set_owner(block, ValueId(static_cast<std::uint32_t>(drawing[at])));
        blocks_.push_back(block);
      }
      at = end;
    }
  }

  [[nodiscard]] const Pool& pool() const { return pool_; }
  [[nodiscard]] const std::vector<BlockId>& blocks() const { return blocks_; }

  // The letters of the blocks that a range of `size` bytes needs, if blocks are added in the order
  // of `letters`. "": no range is large enough.
  [[nodiscard]] std::string needed(std::int64_t size, const std::string& letters) const {
    ClearedRange range(pool_, Bytes(size));
    for (const char letter : letters) {
      const auto named = [&](BlockId block) {
        return pool_.owner(block) == ValueId(static_cast<std::uint32_t>(letter));
      };
      if (range.add(*std::find_if(blocks_.begin(), blocks_.end(), named))) {
        std::string found;
        for (const ValueId owner : range.needed()) {
          found += static_cast<char>(owner.index());
        }
        return found;
      }
    }
    return "";
  }

 private:
  Pool pool_;
  std::vector<BlockId> blocks_;
};

TEST(ClearedRange, BlocksOutsideTheRangeAreLeftOut) {
  const Drawn drawn("a..b#cc.d#e");
  EXPECT_EQ(drawn.needed(4, "aecbd"), "ab");
  EXPECT_EQ(drawn.needed(4, "aecdb"), "cd");
  EXPECT_EQ(drawn.needed(3, "eb"), "b");
  EXPECT_EQ(drawn.needed(5, "abcde"), "");
}

TEST(ClearedRange, LaterBlocksOfTheRangeAreLeftOutFirst) {
  EXPECT_EQ(Drawn("aabbccc").needed(4, "abc"), "ab");
  EXPECT_EQ(Drawn("abbbcc").needed(5, "acb"), "cb");
}

TEST(ClearedRange, NoRangeExtendsAcrossASegment) {
  const Drawn drawn("aabbccdd", Bytes(4));
  EXPECT_EQ(drawn.needed(4, "bcad"), "ba");
  EXPECT_EQ(drawn.needed(5, "bcad"), "");
}

// Blocks of 1 to 3 bytes in a pool of 32, some of which are free. No block crosses a segment of 16.
std::string random_drawing(std::mt19937& random) {
  std::string drawing;
  for (char letter = '0'; drawing.size() < 32; ++letter) {
    const std::size_t most = 16 - drawing.size() % 16;
    const std::size_t size = std::min<std::size_t>(1 + random() % 3, most);
    drawing += std::string(size, random() % 4 == 0 ? '.' : letter);
  }
  return drawing;
}

TEST(ClearedRange, FindsWhatASearchOfThePoolFinds) {
  for (int seed = 0; seed < seeds(2000); ++seed) {
    std::mt19937 random(static_cast<std::uint32_t>(seed));
    const Bytes size(2 + static_cast<std::int64_t>(random() % 9));
    const Drawn drawn(random_drawing(random), Bytes(random() % 2 == 0 ? 16 : 0));
    std::vector<BlockId> order = drawn.blocks();
    std::shuffle(order.begin(), order.end(), random);
    ClearedRange range(drawn.pool(), size);
    std::vector<ValueId> added;
    const auto fits = [&] {
      return Compactor(drawn.pool()).largest_window([&](ValueId owner) {
        return std::find(added.begin(), added.end(), owner) != added.end();
      }) >= size;
    };
    if (fits()) {
      continue;  // a free range is large enough
    }
    for (const BlockId block : order) {
      added.push_back(drawn.pool().owner(block));
      const bool enough = range.add(block);
      ASSERT_EQ(enough, fits()) << seed;
      if (!enough) {
        continue;
      }
      for (std::size_t index = added.size(); index-- > 0;) {
        const ValueId spared = std::exchange(added[index], ValueId());
        if (!fits()) {
          added[index] = spared;
        }
      }
      std::erase(added, ValueId());
      ASSERT_EQ(range.needed(), added) << seed;
      break;
    }
  }
}

}  // namespace
}  // namespace recoup::detail
