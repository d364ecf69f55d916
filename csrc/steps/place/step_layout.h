// StepLayout: an offset for each block of a step that repeats.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "csrc/engine/base/victim_plan.h"
#include "csrc/steps/place/block_log.h"

namespace recoup::detail {

// Note [Layout of a step]
// Offsets repeat with the step, so a block that survives it must lie where its counterpart from the
// previous run lay: both are one item, whose life crosses the step's end. Time is a circle, cut
// where the fewest bytes are taken, which is most often where all gradients are free.
//
//   |fixed|stays|reserve|    items of the step: search    |items that cross the cut|fixed|
//
// Blocks that live through every run stay where they are if that leaves nearly all free bytes in
// one range. Otherwise they are moved once, out of the largest range between the blocks that must
// not move. The reserve is for small blocks that are not known when the step is planned. Items that
// cross the cut lie at the high end, those with the longest lives highest. A search places the
// rest.
//
// A block whose counterpart from the previous run is still taken when it is allocated cannot lie
// where that one lies. Two small blocks of this kind have two places, which they take in turn. A
// large one is moved when the next run begins.
//
// If there is no such layout, each run begins with moves: a block that survives the step need not
// lie where its counterpart lay. With a spill tier many blocks survive, and stacking them wastes
// bytes.
struct StepBlocks {
  // A block from before the step.
  struct Before {
    std::optional<PoolOffset> at;  // its offset when the next run begins; nullopt: not known
    bool fixed = false;            // whether it must not move
    std::uint32_t successor = 0;   // index of the life that replaces it at the end; 0: none
  };
  std::span<const BlockLog::Life> lives;  // those from before the step first
  std::vector<Before> before;             // by life
  std::int32_t sections = 0;              // see LayoutItem
  PoolOffset end;                         // end of the pool
  Bytes alignment{1};                     // of every offset; sizes are multiples of it
};

// Whether the block from before the step is replaced by one that is allocated before it is freed.
[[nodiscard]] bool alternates(const StepBlocks& blocks, std::size_t life);

// By life. Returns nullopt if no layout was found. `nodes`: limit of the search, see TreeSearch.
// `check` is called often and may throw.
[[nodiscard]] std::optional<std::vector<PlannedPlace>> lay_out(const StepBlocks& blocks,
                                                               std::int64_t nodes,
                                                               const std::function<void()>& check);

}  // namespace recoup::detail
