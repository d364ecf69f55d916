// Which blocks to move so that a free range of some size appears. Pure functions of a layout.
#pragma once

#include <boost/container/flat_map.hpp>
#include <cstdint>
#include <optional>
#include <vector>

#include "recoup/types.h"

namespace recoup::detail {

// A block as compaction sees it.
struct Piece {
  BlockId block;
  std::int64_t offset = 0;
  std::int64_t size = 0;
  bool free = false;
  bool movable = false;
  bool starts_segment = false;  // nothing may cross its offset
};

struct Move {
  BlockId block;
  PoolOffset to;
};

// Moves that, done in order, leave a free range of the wanted size. Each `to` range is free, apart
// from overlap with the block's own old range, when its turn comes.
struct CompactionPlan {
  std::vector<Move> moves;
  Bytes moved;  // sum of the sizes of the blocks that move
};

// Kept from plan to plan for its capacity: with what a plan needs new each time, malloc tidied up
// the whole heap for it, and took longer than the plan.
struct CompactionScratch {
  struct Window {
    std::size_t begin;
    std::size_t end;
    std::int64_t cost;
  };
  using Holes = boost::container::flat_multimap<std::int64_t, std::int64_t>;  // size -> offset

  std::vector<Piece> layout;  // the caller's
  std::vector<Piece> before;  // the caller's
  std::vector<Window> windows;
  Holes all_holes;
  Holes holes;
  std::vector<const Piece*> leaving;
};

// A move costs its bytes and `a_move`; a plan that costs more than `limit` is none.
//
// The cheapest slide or relocation of Note [Compaction]; nullopt when none is found.
std::optional<CompactionPlan> cheapest_window(const std::vector<Piece>& layout, std::int64_t size,
                                              std::int64_t a_move, std::int64_t limit,
                                              CompactionScratch& scratch);
// The last resort there.
std::optional<CompactionPlan> slide_and_relocate(const std::vector<Piece>& layout,
                                                 std::int64_t size, std::int64_t a_move,
                                                 std::int64_t limit, CompactionScratch& scratch);

// Moves every movable block as far down as it goes.
CompactionPlan slide_all(const std::vector<Piece>& layout);

}  // namespace recoup::detail
