// Which blocks to move so that a free range of some size appears. Pure functions of a layout.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "csrc/pool/pool.h"

namespace recoup::detail {

// A move costs its bytes and `a_move`; a plan that costs more than `limit` is none.
//
// The cheapest slide or relocation of Note [Compaction]; nullopt when none is found.
std::optional<CompactionPlan> cheapest_window(const std::vector<Piece>& layout, std::int64_t size,
                                              std::int64_t a_move, std::int64_t limit);
// The last resort there.
std::optional<CompactionPlan> slide_and_relocate(const std::vector<Piece>& layout,
                                                 std::int64_t size, std::int64_t a_move,
                                                 std::int64_t limit);

// Moves every movable block as far down as it goes.
CompactionPlan slide_all(const std::vector<Piece>& layout);

}  // namespace recoup::detail
