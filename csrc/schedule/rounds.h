// Where a step goes forward and where it comes back.
#pragma once

#include <cstdint>
#include <vector>

#include "csrc/trace/graph.h"

namespace recoup::detail {

// A forward pass and the backward pass that undoes it. A step of several micro-batches has several.
//
//                   ##
//   live bytes    ######       begin: the valley before; turn: the most live bytes;
//              ##########      end: the valley behind
//            begin  turn  end
struct Round {
  std::uint32_t begin = 0;
  std::uint32_t turn = 0;  // last op of the forward pass
  std::uint32_t end = 0;   // behind the last op of the backward pass
};

// In the order of the program. Empty when nothing in the step can be recomputed.
std::vector<Round> find_rounds(const TraceGraph& graph);

// How a round uses one of the values that its forward pass made.
struct RoundUse {
  std::uint32_t last_forward = 0;                    // last op up to the turn that reads it, or
                                                     // its producer
  std::uint32_t first_backward = GraphValue::kNone;  // first op behind the turn that reads it

  [[nodiscard]] bool activation() const { return first_backward != GraphValue::kNone; }
};
RoundUse use_in(const Round& round, const GraphValue& value);

// Values that a schedule may drop: recomputable, made by the forward pass, and either read again by
// the backward pass or let go before it.
std::vector<std::uint32_t> droppable(const TraceGraph& graph, const Round& round);

}  // namespace recoup::detail
