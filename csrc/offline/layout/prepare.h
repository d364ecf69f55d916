// Converts a LayoutProblem into the inputs of planners.
#pragma once

#include <vector>

#include "csrc/offline/layout/planner.h"

namespace recoup::detail {

// Returns for each buffer the buffer whose place it takes, or an invalid id. At most one buffer
// takes the place of another, and only where that is safe and costs nothing: Note [In place] in
// in_place.cpp. Throws std::invalid_argument for invalid ops.
std::vector<BufferId> choose_in_place(const LayoutProblem& problem, const LayoutOptions& options);

// The input of one planner run, and the buffers that its items stand for.
struct StreamInput {
  LayoutInput input;
  // by item: one buffer, or a chain of in-place buffers
  std::vector<std::vector<BufferId>> buffers;
};

// Returns one input per stream, because streams share no addresses, in the order of stream numbers.
// Omits buffers of 0 bytes.
std::vector<StreamInput> prepare(const LayoutProblem& problem,
                                 const std::vector<BufferId>& in_place,
                                 const LayoutOptions& options);

// Throws std::invalid_argument, which names the first invalid buffer or option.
void check_problem(const LayoutProblem& problem, const LayoutOptions& options);

// For messages: "'conv1' (buffer 3)".
std::string describe(const LayoutProblem& problem, BufferId buffer);

}  // namespace recoup::detail
