// BlockPlan: the planned addresses of a step's blocks.
#pragma once

#include <cstdint>
#include <vector>

#include "csrc/engine/base/victim_plan.h"
#include "csrc/steps/place/block_kind.h"

namespace recoup::detail {

struct BlockPlan {
  // A block that the step allocates.
  struct Entry {
    std::uint32_t ops = 0;        // number of ops of the step that have ended
    std::uint32_t evictions = 0;  // number of entries of the step's eviction list before it
    Bytes size;                   // rounded up to the alignment
    PlannedPlace place;
    friend bool operator==(const Entry&, const Entry&) = default;
  };
  // A spilled value that is fetched before an op uses it.
  struct Fetch {
    std::uint32_t ops = 0;        // number of ops of the step that have ended
    std::uint32_t evictions = 0;  // as in Entry
    Bytes size;                   // as in Entry
    Made value;
    PlannedPlace place;
    friend bool operator==(const Fetch&, const Fetch&) = default;
  };
  // A block from before the step.
  struct Start {
    BlockKind kind;
    PlannedPlace place;
    friend bool operator==(const Start&, const Start&) = default;
  };

  std::vector<Entry> entries;  // in the order of allocation
  std::vector<Fetch> fetches;  // in the order in which they begin
  std::vector<Start> starts;   // equal kinds in the order of addresses in the recorded step
  [[nodiscard]] bool empty() const { return entries.empty(); }
  friend bool operator==(const BlockPlan&, const BlockPlan&) = default;
};

}  // namespace recoup::detail
