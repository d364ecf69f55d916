// Executes plans on bytes: contents must follow their blocks, and no immovable block may move.
// Whether a plan is found, and its cost, are compared with an oracle.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>

#include "csrc/pool/compactor.h"
#include "tests/core/support/compaction_oracle.h"

namespace recoup::detail {
namespace {

// Owners are distinct, so that they can stand for contents; even ones are immovable.
bool movable(ValueId owner) { return owner.valid() && owner.index() % 2 == 1; }

class Arena {
 public:
  explicit Arena(const PoolOptions& options)
      : pool_(options), oracle_(options), segment_(options.segment_size.count()) {}

  // In a drawing such as #aa..b, '#' is one immovable unit, a run of a letter is one movable block,
  // and '.' is free.
  explicit Arena(const std::string& drawing)
      : Arena({.capacity = Bytes(static_cast<std::int64_t>(drawing.size())), .alignment = 1_B}) {
    std::vector<BlockId> gaps;
    for (std::size_t at = 0; at < drawing.size();) {
      const char kind = drawing[at];
      std::size_t end = at + 1;
      while (kind != '#' && end < drawing.size() && drawing[end] == kind) {
        ++end;
      }
      const BlockId id = add(static_cast<std::int64_t>(end - at), kind != '#');
      if (kind == '.') {
        gaps.push_back(id);
      }
      at = end;
    }
    for (const BlockId gap : gaps) {
      free(gap);
    }
  }

  BlockId add(std::int64_t size, bool may_move) {
    const auto id = pool_.allocate(Bytes(size), Zone::kLow);
    const auto offset = oracle_.allocate(size, Zone::kLow);
    if (!id) {
      return {};
    }
    const ValueId owner((next_ += 2) + (may_move ? 1 : 0));
    pool_.set_owner(*id, owner);
    oracle_.set_owner(*offset, owner);
    blocks_.push_back(*id);
    return *id;
  }
  void free(BlockId id) {
    oracle_.free(pool_.view(id).offset.count());
    pool_.free(id);
    std::erase(blocks_, id);
  }

  [[nodiscard]] const Pool& pool() const { return pool_; }
  [[nodiscard]] const std::vector<BlockId>& blocks() const { return blocks_; }
  [[nodiscard]] CompactionOracle oracle() const { return {oracle_, movable}; }
  [[nodiscard]] std::optional<Compaction> plan(std::int64_t size, std::int64_t a_move = 0,
                                               Bytes limit = Compactor::kNoLimit) const {
    return Compactor(pool_).plan(Bytes(size), movable, Bytes(a_move), limit);
  }
  [[nodiscard]] bool fits(std::int64_t size) {
    return pool_.allocate(Bytes(size), Zone::kLow).has_value();
  }

  // The positions of the blocks, in the order in which they were added.
  [[nodiscard]] std::vector<Tile> places() const {
    std::vector<Tile> places;
    for (const BlockId id : blocks_) {
      const BlockView view = pool_.view(id);
      places.push_back(
          {.offset = view.offset.count(), .size = view.size.count(), .owner = view.owner});
    }
    return places;
  }

  void execute(const Compaction& plan) {
    const std::vector<Tile> before = places();
    std::vector<std::uint32_t> bytes(static_cast<std::size_t>(pool_.capacity().count()));
    for (const Tile& block : before) {
      std::fill_n(bytes.begin() + block.offset, block.size, block.owner.index());
    }
    std::int64_t moved = 0;
    for (const Move& move : plan.moves) {
      const BlockView block = pool_.view(move.block);
      const std::int64_t to = move.to.count();
      ASSERT_TRUE(movable(block.owner));
      ASSERT_NE(move.to, block.offset) << "a move that moves nothing";
      ASSERT_EQ(segment_of(to), segment_of(to + block.size.count() - 1));
      for (const Tile& other : places()) {
        ASSERT_TRUE(other.owner == block.owner || to + block.size.count() <= other.offset ||
                    other.offset + other.size <= to)
            << "a move to " << to << " overlaps the block at " << other.offset;
      }
      const auto count = static_cast<std::size_t>(block.size.count());
      std::memmove(&bytes[static_cast<std::size_t>(to)],
                   &bytes[static_cast<std::size_t>(block.offset.count())],
                   count * sizeof(bytes[0]));
      pool_.move(move.block, move.to);
      moved += block.size.count();
    }
    ASSERT_NO_THROW(pool_.check());
    ASSERT_EQ(plan.moved.count(), moved);
    const std::vector<Tile> after = places();
    for (std::size_t i = 0; i < after.size(); ++i) {
      const Tile& block = after[i];
      ASSERT_EQ(block.owner, before[i].owner);
      ASSERT_TRUE(movable(block.owner) || block == before[i]);
      ASSERT_EQ(std::count(bytes.begin() + block.offset, bytes.begin() + block.offset + block.size,
                           block.owner.index()),
                block.size);
    }
  }

 private:
  [[nodiscard]] std::int64_t segment_of(std::int64_t offset) const {
    return segment_ == 0 ? 0 : offset / segment_;
  }

  Pool pool_;
  PoolOracle oracle_;
  std::int64_t segment_;
  std::vector<BlockId> blocks_;
  std::uint32_t next_ = 0;
};

PoolOptions random_options(std::mt19937_64& random, std::int64_t capacity, std::int64_t largest) {
  const std::int64_t alignment = random() % 4 == 0 ? 4 : 1;
  PoolOptions options{.capacity = Bytes(capacity * alignment), .alignment = Bytes(alignment)};
  if (random() % 4 == 0) {
    options.segment_size = Bytes((largest + static_cast<std::int64_t>(random() % 8)) * alignment);
  }
  return options;
}

// Fills the pool and then frees some of the blocks; a few of the others are immovable.
void fill(Arena& arena, std::mt19937_64& random, std::int64_t largest) {
  const std::uint64_t fixed = 2 + random() % 6;
  const auto size = [&] {
    return 1 + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(largest));
  };
  while (arena.add(size(), random() % fixed != 0).valid()) {
  }
  const std::uint64_t kept = 1 + random() % 4;
  for (const BlockId id : std::vector(arena.blocks())) {
    if (random() % (kept + 1) == 0) {
      arena.free(id);
    }
  }
}

std::int64_t random_size(const Pool& pool, std::mt19937_64& random) {
  return 1 + static_cast<std::int64_t>(random() %
                                       static_cast<std::uint64_t>(pool.capacity().count() / 2));
}

void expect_room(Arena& arena, const Compaction& plan, std::int64_t size) {
  arena.execute(plan);
  ASSERT_FALSE(testing::Test::HasFatalFailure());
  ASSERT_GE(arena.pool().largest_free(), arena.pool().round_up(Bytes(size)));
  ASSERT_TRUE(arena.fits(size));
}

TEST(Compaction, FindsTheCheapestPlanOfTheNote) {
  int found = 0;
  int missed = 0;
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    Arena arena(random_options(random, 30, 6));
    fill(arena, random, arena.pool().round_up(1_B).count() * 6);
    const std::int64_t size = random_size(arena.pool(), random);
    const std::int64_t rounded = arena.pool().round_up(Bytes(size)).count();
    const CompactionOracle oracle = arena.oracle();
    const auto plan = arena.plan(size);
    const auto cheapest = oracle.cheapest(rounded);
    ASSERT_EQ(plan.has_value(), cheapest.has_value());
    if (plan) {
      ++found;
      ASSERT_EQ(plan->moved.count(), *cheapest);
      ASSERT_TRUE(oracle.possible(rounded));
      expect_room(arena, *plan, size);
      ASSERT_FALSE(HasFatalFailure());
    } else if (oracle.possible(rounded)) {
      ++missed;
    }
  }
  // Optimal packing is hard and the search is a heuristic: it may miss a few rearrangements.
  EXPECT_GT(found, 1000);
  EXPECT_LT(missed, found * 3 / 100) << "of " << found;
}

// The search does not try all windows of a large layout, but its plan must not be more expensive
// than a slide, which is always found.
TEST(Compaction, FindsASlideInALargeLayout) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    Arena arena(random_options(random, 2000, 20));
    fill(arena, random, arena.pool().round_up(1_B).count() * 20);
    const std::int64_t size = 1 + random_size(arena.pool(), random) / 8;
    const std::int64_t rounded = arena.pool().round_up(Bytes(size)).count();
    const auto slide = arena.oracle().cheapest_slide(rounded);
    const auto plan = arena.plan(size);
    ASSERT_TRUE(plan || !slide);
    if (plan) {
      ASSERT_LE(plan->moved.count(), slide.value_or(plan->moved.count()));
      expect_room(arena, *plan, size);
      ASSERT_FALSE(HasFatalFailure());
    }
  }
}

std::int64_t cost_of(const Compaction& plan, std::int64_t a_move) {
  return plan.moved.count() + a_move * static_cast<std::int64_t>(plan.moves.size());
}

// With a limit the search looks only near free blocks. It may miss only a few windows that contain
// no free block.
TEST(Compaction, RespectsItsLimit) {
  int found = 0;
  int missed = 0;
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    Arena arena(random_options(random, 60, 6));
    fill(arena, random, arena.pool().round_up(1_B).count() * 6);
    const std::int64_t size = 1 + random_size(arena.pool(), random) / 2;
    const std::int64_t a_move = static_cast<std::int64_t>(random() % 4);
    const std::int64_t limit = static_cast<std::int64_t>(random() % 40);
    const auto cheapest = arena.plan(size, a_move);
    const bool within = cheapest && cost_of(*cheapest, a_move) <= limit;
    const auto plan = arena.plan(size, a_move, Bytes(limit));
    if (plan) {
      ++found;
      ASSERT_LE(cost_of(*plan, a_move), limit);
      ASSERT_TRUE(cheapest);
      missed += cost_of(*plan, a_move) > cost_of(*cheapest, a_move) ? 1 : 0;
      expect_room(arena, *plan, size);
      ASSERT_FALSE(HasFatalFailure());
    } else {
      missed += within ? 1 : 0;
    }
  }
  EXPECT_GT(found, 500);
  EXPECT_LT(missed, found / 20) << "of " << found;
}

// The two blocks next to the free bytes fit in the hole on the right.
TEST(Compaction, SearchesUpToItsLimit) {
  for (const std::int64_t limit : {3, 4}) {
    Arena arena("#aabbccdd..eeffgg#....#");
    const auto plan = arena.plan(6, 0, Bytes(limit));
    EXPECT_EQ(plan.has_value(), limit == 4) << "limit " << limit;
  }
}

TEST(Compaction, SlidesEverythingDown) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    Arena arena(random_options(random, 200, 10));
    fill(arena, random, arena.pool().round_up(1_B).count() * 10);
    CompactionOracle slid = arena.oracle();
    const std::int64_t moved = slid.slide_all();
    const Compaction plan = Compactor(arena.pool()).plan_slide(movable);
    EXPECT_EQ(plan.moved.count(), moved);
    arena.execute(plan);
    ASSERT_FALSE(HasFatalFailure());
    std::vector<Tile> places = arena.places();
    std::sort(places.begin(), places.end(),
              [](const Tile& a, const Tile& b) { return a.offset < b.offset; });
    std::vector<Tile> expected = slid.pool().tiles();
    std::erase_if(expected, [](const Tile& tile) { return tile.free; });
    ASSERT_EQ(places, expected);
    EXPECT_TRUE(Compactor(arena.pool()).plan_slide(movable).moves.empty());
  }
}

// The drawings of Note [Compaction].
TEST(Compaction, MovesOnlyTheBlockBetweenTwoHoles) {
  Arena arena("#aa..bb..#");
  const auto plan = arena.plan(4);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->moved, 2_B);
  EXPECT_EQ(arena.pool().view(plan->moves.at(0).block).offset, 5_B);
  expect_room(arena, *plan, 4);
}

// The left holes are separated by two blocks of one byte, the right ones by one block of three
// bytes.
TEST(Compaction, ManyMovesCostMoreThanTheirBytes) {
  for (const std::int64_t a_move : {0, 2}) {
    Arena arena("..a.b..#...ddd..#");
    const auto plan = arena.plan(5, a_move);
    ASSERT_TRUE(plan);
    EXPECT_EQ(plan->moves.size(), a_move == 0 ? 2U : 1U);
    EXPECT_EQ(plan->moved, a_move == 0 ? 2_B : 3_B);
    expect_room(arena, *plan, 5);
  }
}

TEST(Compaction, MovesABlockToAHoleElsewhere) {
  Arena arena("#aa..#bb..ccc#");
  const auto plan = arena.plan(4);
  ASSERT_TRUE(plan);
  ASSERT_EQ(plan->moves.size(), 1U);
  EXPECT_EQ(plan->moved, 2_B);
  expect_room(arena, *plan, 4);
}

TEST(Compaction, SlidesUntilAHoleIsLargeEnough) {
  Arena arena("#a.b.#cc...#");
  const auto plan = arena.plan(5);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->moved, 3_B);  // b, then cc after it
  expect_room(arena, *plan, 5);
}

TEST(Compaction, MovesNothingIfARangeIsFree) {
  Arena arena("aa....bb");
  const auto plan = arena.plan(4);
  ASSERT_TRUE(plan);
  EXPECT_TRUE(plan->moves.empty());
  EXPECT_EQ(plan->moved, 0_B);
}

TEST(Compaction, FindsNoPlanIfThereIsNone) {
  EXPECT_FALSE(Arena("aa.bb.cc").plan(3));      // too few free bytes
  EXPECT_FALSE(Arena("aa.#b.#cc..#").plan(5));  // no two immovable blocks are that far apart
  EXPECT_FALSE(Arena("aaa.#bb.#..#").plan(4));  // no hole holds aaa
}

// A block that moves by less than its own size overlaps its old position.
TEST(Compaction, MovesABlockToAnOverlappingRange) {
  Arena arena(".aaaaa.#");
  const auto plan = arena.plan(2);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->moved, 5_B);
  expect_room(arena, *plan, 2);
}

}  // namespace
}  // namespace recoup::detail
