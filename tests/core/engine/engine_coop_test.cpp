// How the engine carries out Coop's windows: one plan frees the room, and the allocation is placed
// there.
#include <gtest/gtest.h>

#include "tests/core/support/engine_contract.h"

namespace recoup::detail {
namespace {

Options coop_options(std::int64_t budget_units) {
  Options options;
  options.budget = units(budget_units);
  options.policy = "coop";
  options.small_result_bytes = 64_B;
  return options;
}

// `count` values of one unit, computed from x. Blocks are placed from high addresses to low ones.
std::vector<Tensor> row_of(Program& p, Tensor x, int count) {
  std::vector<Tensor> row;
  for (int i = 0; i < count; ++i) {
    row.push_back(p.op({x}, kUnit));
  }
  return row;
}

// |r6|r5|r4|r3|r2|r1|r0|x!|, and 3 units are allocated: r2, r1 and r0 are the oldest.
TEST(EngineCoop, OneWindowFreesTheRoom) {
  Program p(coop_options(8));
  const Tensor x = p.source(kUnit);
  const std::vector<Tensor> row = row_of(p, x, 7);
  const auto address = p.storage(row[2]).offset;
  const Tensor wide = p.op({x}, units(3));
  EXPECT_EQ(p.storage(wide).offset, address);
  EXPECT_FALSE(p.resident(row[0]) || p.resident(row[1]) || p.resident(row[2]));
  EXPECT_EQ(p.stats().evictions, 3);
  EXPECT_EQ(p.stats().plans, 1);
  EXPECT_EQ(p.stats().misfits, 0);
  EXPECT_EQ(p.stats().candidates_visited, 7);
  EXPECT_EQ(p.stats().moves, 0);
  p.check();
  p.expect_all();
}

// |....|r2|r1|r0|x!|: two units are free in the pool's addresses, but not in the budget.
TEST(EngineCoop, WithAFreePlaceAnyBytesAreEvicted) {
  Options options = coop_options(4);
  options.addresses = units(8);
  Program p(options);
  const Tensor x = p.source(kUnit);
  const std::vector<Tensor> row = row_of(p, x, 3);
  static_cast<void>(p.op({x}, units(2)));
  EXPECT_FALSE(p.resident(row[0]) || p.resident(row[1]));
  EXPECT_TRUE(p.resident(row[2]));
  EXPECT_EQ(p.stats().plans, 2);
  EXPECT_EQ(p.stats().moves, 0);
  p.check();
  p.expect_all();
}

// |r2|x2!|r1|x1!|r0|x0!|: no two evictable units are adjacent. Two values are evicted, and a source
// moves.
TEST(EngineCoop, WithoutAWideWindowABlockMoves) {
  Program p(coop_options(6));
  std::vector<Tensor> sources;
  for (int i = 0; i < 3; ++i) {
    sources.push_back(p.source(kUnit));
    const Nanoseconds more_than_a_move{10000};
    static_cast<void>(
        p.run({.arguments = {{sources.back()}}, .fresh = {kUnit}, .cost = more_than_a_move}));
  }
  static_cast<void>(p.op({sources[0]}, units(2)));
  EXPECT_EQ(p.stats().evictions, 2);
  EXPECT_GT(p.stats().moves, 0);
  EXPECT_EQ(p.stats().misfits, 1);
  EXPECT_EQ(p.stats().misfit_ppm, 500'000);  // two units needed; the largest free block has one
  EXPECT_EQ(p.stats().made_room_bytes, units(2).count());
  p.check();
  p.expect_all();
}

// |r5|r4|r3|x1!|r1|r0|x!|: r1 and r0 are expensive, r3 is cheap. x1 moves away from between r3 and
// r1.
TEST(EngineCoop, AWindowMayContainMovableBlocks) {
  for (const bool moves : {false, true}) {
    Options options = coop_options(7);
    options.policy = moves ? "coop-move" : "coop";
    Program p(options);
    const Tensor x = p.source(kUnit);
    std::vector<Tensor> row;
    const auto make = [&](std::int64_t cost) {
      row.push_back(
          p.run({.arguments = {{x}}, .fresh = {kUnit}, .cost = Nanoseconds(cost)}).front());
    };
    make(100'000'000);
    make(1'000'000);
    p.source(kUnit);
    make(1'000'000);
    make(100'000'000);
    make(100'000'000);
    static_cast<void>(p.op({x}, units(2)));
    EXPECT_EQ(p.resident(row[0]), moves);
    EXPECT_FALSE(p.resident(row[1]));
    EXPECT_EQ(p.resident(row[2]), !moves);
    EXPECT_EQ(p.stats().moves, moves ? 1 : 0);
    p.check();
    p.expect_all();
  }
}

TEST(EngineCoop, ExternalBytesNeedNoWindow) {
  Program p(coop_options(6));
  const Tensor x = p.source(kUnit);
  const std::vector<Tensor> row = row_of(p, x, 5);
  p.external(units(2));
  EXPECT_EQ(p.stats().evictions, 2);
  EXPECT_EQ(p.stats().moves, 0);
  p.check();
}

}  // namespace
}  // namespace recoup::detail
