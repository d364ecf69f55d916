// From a problem as people write it to what a planner gets.
#pragma once

#include <vector>

#include "csrc/offline/layout/planner.h"

namespace recoup::detail {

// Whose place each buffer takes; invalid: nobody's. A buffer is taken the place of at most once,
// and only where that is safe and costs nothing: Note [In place] in in_place.cpp. Throws
// std::invalid_argument for ops that make no sense.
std::vector<BufferId> choose_in_place(const LayoutProblem& problem, const LayoutOptions& options);

// One planner's input and whose offsets it gives.
struct StreamInput {
  PlanInput input;
  std::vector<std::vector<BufferId>> buffers;  // of each item: one, or a chain of in-place buffers
};

// One a stream, for streams share nothing, in the order of their numbers. Buffers of no bytes are
// in none.
std::vector<StreamInput> prepare(const LayoutProblem& problem,
                                 const std::vector<BufferId>& in_place,
                                 const LayoutOptions& options);

// Throws std::invalid_argument that names the first buffer or option that makes no sense.
void check_problem(const LayoutProblem& problem, const LayoutOptions& options);

// "'conv1' (buffer 3)".
std::string describe(const LayoutProblem& problem, BufferId buffer);

}  // namespace recoup::detail
