// The optimal persistent schedule of a heterogeneous chain (Beaumont, Eyraud-Dubois, Herrmann,
// Joly, Shilova: Optimal checkpointing for heterogeneous chains, 2019, theorem 1).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace recoup::detail {

struct ChainStage {
  std::int64_t cost = 0;   // cost of its forward pass
  std::int64_t input = 0;  // bytes that it reads from the previous stage
  std::int64_t saved = 0;  // bytes that its backward pass reads from it
};

// The values that are kept while the backward pass works on a stage: see Note [Segments of a pass].
struct ChainState {
  std::vector<bool> inputs;  // by stage
  std::vector<bool> whole;
};

struct ChainSchedule {
  std::int64_t cost = 0;  // cost of all forward passes, including the first ones
  std::vector<ChainState> states;
};

// `memory`: bytes for kept values, without the input of stage 0. Sizes are rounded up to 1/`slots`
// of it. nullopt if even the least does not fit.
std::optional<ChainSchedule> optimal_chain(const std::vector<ChainStage>& stages,
                                           std::int64_t memory, int slots = 256);

}  // namespace recoup::detail
