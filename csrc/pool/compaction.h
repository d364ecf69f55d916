// Which blocks to move so that a free range of some size appears. Pure functions of a layout.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "csrc/pool/pool.h"

namespace recoup::detail {

// The cheapest plan among those of Note [Compaction], where a move costs its bytes and `a_move`.
// nullopt when none is found.
std::optional<CompactionPlan> cheapest_compaction(const std::vector<Piece>& layout,
                                                  std::int64_t size, std::int64_t a_move);

// Moves every movable block as far down as it goes.
CompactionPlan slide_all(const std::vector<Piece>& layout);

}  // namespace recoup::detail
