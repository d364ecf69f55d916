// Finds the forward and backward passes of a step.
#pragma once

#include <cstdint>
#include <vector>

#include "csrc/trace/graph.h"

namespace recoup::detail {

// A forward pass and the backward pass that belongs to it. A step with several micro-batches has
// several rounds.
//
//                   ##
//   live bytes    ######       begin: the valley before the peak; turn: the peak of live bytes;
//              ##########      end: the valley after the peak
//            begin  turn  end
struct Round {
  std::uint32_t begin = 0;
  std::uint32_t turn = 0;  // last op of the forward pass
  std::uint32_t end = 0;   // one past the last op of the backward pass
};

// In the order of the program. Empty if nothing in the step can be recomputed.
std::vector<Round> find_rounds(const TraceGraph& graph);

// How a round uses a value that its forward pass made.
struct RoundUse {
  std::uint32_t last_forward = 0;  // last op up to the turn that reads it; else its producer
  std::uint32_t first_backward = GraphValue::kNone;  // first op after the turn that reads it

  [[nodiscard]] bool activation() const { return first_backward != GraphValue::kNone; }
};
RoundUse use_in(const Round& round, const GraphValue& value);

// Values that a schedule may drop: recomputable, made by the forward pass, and either read again by
// the backward pass or freed before it.
std::vector<std::uint32_t> droppable(const TraceGraph& graph, const Round& round);

}  // namespace recoup::detail
