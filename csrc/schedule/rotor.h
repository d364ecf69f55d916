// The optimal persistent schedule of a heterogeneous chain (Beaumont, Eyraud-Dubois, Herrmann,
// Joly, Shilova: Optimal checkpointing for heterogeneous chains, 2019, theorem 1).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace recoup::detail {

struct ChainStage {
  std::int64_t cost = 0;   // of its forward pass
  std::int64_t input = 0;  // bytes of what it reads of the stage before
  std::int64_t saved = 0;  // bytes of all that its backward pass reads of it
};

// What is kept while the backward pass works on each stage: see Note [Segments].
struct ChainState {
  std::vector<bool> inputs;  // by stage
  std::vector<bool> whole;
};

struct ChainSchedule {
  std::int64_t cost = 0;  // of all forward passes, the first included
  std::vector<ChainState> states;
};

// `memory`: bytes for what is kept, without the input of stage 0; sizes are rounded up to
// 1/`slots` of it. None when even the least does not fit.
std::optional<ChainSchedule> optimal_chain(const std::vector<ChainStage>& stages,
                                           std::int64_t memory, int slots = 256);

}  // namespace recoup::detail
