// Coop's window is the cheapest one: compared with all windows of random layouts, and by hand.
#include <gtest/gtest.h>

#include <optional>

#include "tests/core/policy/policy_fake_view.h"
#include "tests/core/support/seeds.h"

namespace recoup {
namespace {

constexpr Tick kCoopNow = Tick{1} << 40;
// Exact for sums of the numbers that the layouts below consist of.
#if __LDBL_MANT_DIG__ >= 113
using Exact = long double;  // as on arm64, which has no __float128
#else
__extension__ using Exact = __float128;
#endif

// Candidates, and the blocks between them in the pool.
struct Layout {
  std::vector<Row> rows;
  std::vector<PoolBlock> blocks;
  std::vector<std::vector<std::uint32_t>> inputs;

  [[nodiscard]] FakeView view() const {
    FakeView view(rows, kCoopNow);
    view.set_blocks(blocks);
    view.set_inputs(inputs);
    return view;
  }

  void add_free(std::int64_t size) { blocks.push_back({.size = Bytes(size), .free = true}); }
  void add_fixed(std::int64_t size) { blocks.push_back({.size = Bytes(size)}); }
  void add_movable(std::int64_t size, std::int64_t cost) {
    add_fixed(size);
    blocks.back().move_cost = Nanoseconds(cost);
  }
  // `cost` is the value's own; `around`, that of its neighborhood, is added.
  void add(std::int64_t size, std::int64_t cost, Tick staleness, std::int64_t around = 0) {
    const auto index = static_cast<std::uint32_t>(rows.size());
    blocks.push_back({.size = Bytes(size), .candidate = index});
    rows.push_back({.candidate = {.id = ValueId(100 + index),
                                  .size = Bytes(size),
                                  .offset = Bytes(0),
                                  .own_cost = Nanoseconds(cost),
                                  .last_access = kCoopNow - staleness},
                    .exact = {},
                    .equivalence = Nanoseconds(around),
                    .ancestors = {}});
    inputs.emplace_back();
  }
};

double staleness(const Row& row) {
  return static_cast<double>(std::max<Tick>(kCoopNow - row.candidate.last_access, 1));
}

double cost(const Row& row) {
  return static_cast<double>((row.candidate.own_cost + row.equivalence).count()) / staleness(row);
}

// The cost and the bytes of a window of blocks; nullopt if it contains an unevictable block or the
// start of a segment.
struct Worth {
  Exact cost = 0;
  std::int64_t bytes = 0;
  std::int64_t evictable = 0;
  std::vector<ValueId> victims;
};

std::optional<Worth> worth(const Layout& layout, std::size_t begin, std::size_t end, bool chains,
                           const std::vector<double>& moves) {
  Worth worth;
  std::vector<std::uint32_t> inside;
  for (std::size_t at = begin; at < end; ++at) {
    const PoolBlock& block = layout.blocks[at];
    const bool movable = !moves.empty() && block.move_cost != Candidate::kNever;
    if ((at > begin && block.starts_segment) ||
        (!block.free && block.candidate == PoolBlock::kNone && !movable)) {
      return std::nullopt;
    }
    worth.bytes += block.size.count();
    if (movable) {
      worth.cost += moves[at];
    } else if (!block.free) {
      inside.push_back(block.candidate);
    }
  }
  for (std::uint32_t index : inside) {
    const Row& row = layout.rows[index];
    worth.cost += cost(row);
    worth.evictable += row.candidate.size.count();
    worth.victims.push_back(row.candidate.id);
    for (std::uint32_t input : layout.inputs[index]) {
      if (chains && std::find(inside.begin(), inside.end(), input) != inside.end()) {
        worth.cost +=
            static_cast<double>(layout.rows[input].candidate.own_cost.count()) / staleness(row);
      }
    }
  }
  return worth;
}

// The costs of moves on the scale of c / s: a move costs as much as a replay of the same duration
// of a value of mean age.
std::vector<double> worth_of_moves(const Layout& layout) {
  double costs = 0;
  double waits = 0;
  for (const PoolBlock& block : layout.blocks) {
    if (block.candidate != PoolBlock::kNone) {
      const Row& row = layout.rows[block.candidate];
      const auto time = static_cast<double>((row.candidate.own_cost + row.equivalence).count());
      costs += time;
      waits += time * staleness(row);
    }
  }
  const double age = costs > 0 ? waits / costs : 1;
  std::vector<double> moves;
  for (const PoolBlock& block : layout.blocks) {
    moves.push_back(static_cast<double>(block.move_cost.count()) / age);
  }
  return moves;
}

// The cheapest window that makes the room; of equal ones the one with the fewest bytes, then the
// lowest address. Without `moves` no block may be moved.
std::vector<ValueId> best_window(const Layout& layout, const RoomRequest& request, bool chains,
                                 const std::vector<double>& moves = {}) {
  std::optional<Worth> best;
  for (std::size_t begin = 0; begin < layout.blocks.size(); ++begin) {
    for (std::size_t end = begin + 1; end <= layout.blocks.size(); ++end) {
      const auto found = worth(layout, begin, end, chains, moves);
      if (found && !found->victims.empty() && found->bytes >= request.size.count() &&
          found->evictable >= request.shortfall.count() &&
          (!best || found->cost < best->cost ||
           (found->cost == best->cost && found->bytes < best->bytes))) {
        best = found;
      }
    }
  }
  return best ? best->victims : std::vector<ValueId>();
}

// The lowest cost per byte; of equal ones the largest, then the lowest id.
ValueId best_single(const Layout& layout) {
  const Row* best = nullptr;
  const auto per_byte = [](const Row& row) {
    return cost(row) / static_cast<double>(row.candidate.size.count());
  };
  for (const Row& row : layout.rows) {
    if (best == nullptr || per_byte(row) < per_byte(*best) ||
        (per_byte(row) == per_byte(*best) && row.candidate.size > best->candidate.size)) {
      best = &row;
    }
  }
  return best->candidate.id;
}

enum class Kind : std::uint8_t { kTies, kSpread, kJustUsed };

Layout random_layout(Rng& rng, Kind kind, bool movable = false) {
  Layout layout;
  const std::int64_t count = draw(rng, 1, 14);
  const std::int64_t fixed = draw(rng, 0, 3);  // out of 10
  const bool segments = draw(rng, 0, 9) == 0;
  while (static_cast<std::int64_t>(layout.blocks.size()) < count) {
    const std::int64_t size = draw(rng, 1, kind == Kind::kTies ? 3 : 1000);
    const std::int64_t dice = draw(rng, 0, 9);
    if (dice < fixed && movable && draw(rng, 0, 2) > 0) {
      layout.add_movable(size, draw(rng, 0, kind == Kind::kTies ? 2 : 1 << 20));
    } else if (dice < fixed) {
      layout.add_fixed(size);
    } else if (dice < 6) {
      layout.add_free(size);
    } else if (kind == Kind::kTies) {
      layout.add(size, draw(rng, 0, 2), Tick{1} << draw(rng, 0, 2), draw(rng, 0, 1));
    } else if (kind == Kind::kJustUsed && draw(rng, 0, 2) == 0) {  // infinite, as published
      layout.add(size, std::int64_t{1} << draw(rng, 0, 60), 0, 0);
    } else {
      layout.add(size, draw(rng, 0, 1 << 20), draw(rng, 0, 1 << 20), draw(rng, 0, 1 << 20));
    }
    layout.blocks.back().starts_segment = segments && draw(rng, 0, 3) == 0;
  }
  const auto rows = static_cast<std::uint32_t>(layout.rows.size());
  for (std::uint32_t index = 0; index < rows; ++index) {
    for (std::uint32_t input = 0; input < rows; ++input) {
      if (input != index && draw(rng, 0, 4) == 0) {
        layout.inputs[index].push_back(input);
      }
    }
  }
  return layout;
}

std::unique_ptr<EvictionPolicy> coop(bool chains) {
  return find_policy("coop").make({.chain_cost = chains});
}

bool has_place(const Layout& layout, Bytes size) {
  return std::any_of(layout.blocks.begin(), layout.blocks.end(),
                     [size](const PoolBlock& block) { return block.free && block.size >= size; });
}

struct Variant {
  std::string_view name;
  bool chains;
};

class PolicyWindow : public testing::TestWithParam<Variant> {};

TEST_P(PolicyWindow, IsTheCheapestWindow) {
  constexpr int kLayouts = seeds(100'000);
  const auto [name, chains] = GetParam();
  const bool moves = name == "coop-move";
  {
    Rng rng(1);
    const auto policy = find_policy(name).make({.chain_cost = chains});
    int windows = 0;
    for (int i = 0; i < kLayouts; ++i) {
      const Layout layout = random_layout(rng, static_cast<Kind>(i % 3), moves);
      if (layout.rows.empty()) {
        continue;
      }
      std::int64_t total = 0;
      for (const PoolBlock& block : layout.blocks) {
        total += block.size.count();
      }
      const std::int64_t size = draw(rng, 1, total + total / 8);
      const RoomRequest request = {.size = Bytes(size),
                                   .shortfall = Bytes(draw(rng, 0, 1) * draw(rng, 0, size))};
      const FakeView view = layout.view();
      const std::vector<ValueId> victims = policy->plan(view, request).victims;
      const std::vector<ValueId> expected =
          has_place(layout, request.size)
              ? std::vector<ValueId>()
              : best_window(layout, request, chains,
                            moves ? worth_of_moves(layout) : std::vector<double>());
      if (expected.empty()) {
        ASSERT_EQ(victims, std::vector{best_single(layout)}) << "layout " << i;
      } else {
        ++windows;
        ASSERT_EQ(victims, expected) << "layout " << i;
      }
      ASSERT_TRUE(std::all_of(view.visits().begin(), view.visits().end(),
                              [](int visits) { return visits == 1; }));
    }
    EXPECT_GT(windows, kLayouts / 4);  // the other plans are of single values
    EXPECT_LT(windows, kLayouts * 3 / 4);
  }
}

INSTANTIATE_TEST_SUITE_P(All, PolicyWindow,
                         testing::Values(Variant{"coop", false}, Variant{"coop", true},
                                         Variant{"coop-move", false}));

constexpr RoomRequest kFour = {.size = Bytes(4), .shortfall = Bytes(0)};

std::vector<std::uint32_t> victims(const Layout& layout, const RoomRequest& request,
                                   bool chains = false) {
  std::vector<std::uint32_t> indices;
  for (ValueId id : coop(chains)->plan(layout.view(), request).victims) {
    indices.push_back(id.index() - 100);
  }
  return indices;
}

using Indices = std::vector<std::uint32_t>;

TEST(PolicyCoop, ShrinksTheLastWindow) {
  Layout layout;  // the published loop ends with all three in its last window, at a cost of 12
  layout.add(2, 8, 1);
  layout.add(3, 3, 1);
  layout.add(1, 1, 1);
  EXPECT_EQ(victims(layout, kFour), (Indices{1, 2}));
}

TEST(PolicyCoop, FreeBlocksCostNothing) {
  Layout layout;
  layout.add(4, 10, 1);
  layout.add_free(3);
  layout.add(1, 9, 1);
  EXPECT_EQ(victims(layout, kFour), Indices{1});
  // The window gains one byte only, but the budget lacks three.
  EXPECT_EQ(victims(layout, {.size = Bytes(4), .shortfall = Bytes(3)}), Indices{0});
  EXPECT_EQ(victims(layout, {.size = Bytes(4), .shortfall = Bytes(5)}), (Indices{0, 1}));
}

TEST(PolicyCoop, ScoresDoNotDependOnSize) {
  Layout layout;
  layout.add(40, 11, 1);  // 0.3 per byte
  layout.add_fixed(1);
  layout.add(4, 10, 1);  // 2.5 per byte, and large enough
  EXPECT_EQ(victims(layout, kFour), Indices{1});
}

TEST(PolicyCoop, WindowsContainNoUnevictableBlockAndNoSegmentStart) {
  Layout layout;
  layout.add(2, 1, 1);
  layout.add_fixed(1);
  layout.add(2, 1, 1);
  layout.add(2, 50, 1);
  EXPECT_EQ(victims(layout, kFour), (Indices{1, 2}));
  layout.blocks[3].starts_segment = true;  // no window is left: the lowest cost per byte
  EXPECT_EQ(victims(layout, kFour), Indices{0});
}

TEST(PolicyCoop, AnInfiniteScoreDoesNotSpoilOtherSums) {
  constexpr std::int64_t kHuge = std::int64_t{1} << 62;
  Layout layout;
  layout.add(2, kHuge, 0, kHuge - 1);
  layout.add(2, kHuge, 0, kHuge - 1);
  layout.add(2, 2, 1);
  layout.add(2, 1, 1);
  EXPECT_EQ(victims(layout, kFour), (Indices{2, 3}));
}

TEST(PolicyCoop, TiesAreBrokenByBytesThenByAddress) {
  Layout layout;
  layout.add(5, 1, 1);
  layout.add_fixed(1);
  layout.add(4, 1, 1);
  layout.add_fixed(1);
  layout.add(4, 1, 1);
  EXPECT_EQ(victims(layout, kFour), Indices{1});
}

TEST(PolicyCoop, WithoutAWindowTheLowestCostPerByteIsTaken) {
  Layout layout;
  layout.add(4, 10, 1);
  layout.add(40, 11, 1);
  EXPECT_EQ(victims(layout, {.size = Bytes(0), .shortfall = Bytes(4)}), Indices{1});
  EXPECT_EQ(victims(layout, {.size = Bytes(4), .shortfall = Bytes(4)}), Indices{0});
  layout.add_free(4);  // a large enough free block exists now
  EXPECT_EQ(victims(layout, {.size = Bytes(4), .shortfall = Bytes(4)}), Indices{1});
}

TEST(PolicyCoop, ChainsCostMoreInOneWindow) {
  Layout layout;
  layout.add(2, 6, 2);
  layout.add(2, 4, 2);  // computed from the first: 3 + 2, and 6 / 2 more
  layout.add_fixed(1);
  layout.add(2, 6, 1);
  layout.add(2, 1, 1);
  layout.inputs[1] = {0};
  EXPECT_EQ(victims(layout, kFour), (Indices{0, 1}));
  EXPECT_EQ(victims(layout, kFour, true), (Indices{2, 3}));
  EXPECT_TRUE(coop(true)->needs().inputs);
  EXPECT_FALSE(coop(false)->needs().inputs);
}

}  // namespace
}  // namespace recoup
