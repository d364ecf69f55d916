// Plans which blocks to move to obtain a free range of a given size. Pure functions of a layout.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "recoup/types.h"

namespace recoup::detail {

// A block, as compaction needs it.
struct Piece {
  BlockId block;
  std::int64_t offset = 0;
  std::int64_t size = 0;
  bool free = false;
  bool movable = false;
  bool starts_segment = false;  // no block may extend across its offset
};

// The offsets [begin, end).
struct PoolRange {
  PoolOffset begin;
  PoolOffset end;
};

struct Move {
  BlockId block;
  PoolOffset to;
};

// Moves that leave a free range of the requested size if they are done in order. When a move is
// done, its `to` range is free, except that it may overlap the old range of the same block.
struct Compaction {
  std::vector<Move> moves;
  Bytes moved;  // total size of the moved blocks
};

// Buffers that are reused for all plans. With new buffers for each plan, malloc consolidated the
// whole heap, which took longer than the plan.
struct CompactionScratch {
  struct Window {
    std::size_t begin;
    std::size_t end;
    std::int64_t cost;
  };
  struct Hole {
    std::int64_t size;
    std::int64_t offset;
  };
  // A hole that was filled, at its index, and the index of what is left of it, if any is left.
  struct Filled {
    Hole hole;
    std::ptrdiff_t at;
    std::optional<std::ptrdiff_t> rest;
  };

  std::vector<Piece> layout;  // for the caller
  std::vector<Piece> before;  // for the caller
  std::vector<Window> windows;
  std::vector<Hole> holes;  // by size; equal ones by address
  std::int64_t free = 0;    // bytes of all holes
  std::vector<Filled> filled;
  std::vector<const Piece*> leaving;
};

// The cost of a move is its bytes plus `a_move`. Plans that cost more than `limit` are rejected.
//
// The cheapest slide or relocation of Note [Compaction]; nullopt if none is found.
std::optional<Compaction> cheapest_window(const std::vector<Piece>& layout, std::int64_t size,
                                          std::int64_t a_move, std::int64_t limit,
                                          CompactionScratch& scratch);
// The last resort of Note [Compaction].
std::optional<Compaction> slide_and_relocate(const std::vector<Piece>& layout, std::int64_t size,
                                             std::int64_t a_move, std::int64_t limit,
                                             CompactionScratch& scratch);

// Slides every movable block as far down as possible.
Compaction slide_all(const std::vector<Piece>& layout);

}  // namespace recoup::detail
