// A trace as planners see it: ops in the order of the program, and the values between them.
//
// Positions count the ops that did not fail, from 0. A write makes a new value of the same storage,
// as in the lineage graph; what an op wrote in passing is a value that nothing can recompute.
#pragma once

#include <cstdint>
#include <vector>

#include "recoup/trace.h"

namespace recoup::detail {

struct GraphValue {
  static constexpr std::uint32_t kNone = 0xffffffff;

  std::uint32_t storage = 0;       // as the trace numbers them
  std::uint32_t producer = kNone;  // position of the op that made it; none: from outside
  std::uint32_t born = 0;          // of the first op at or after its birth: the producer, if any
  // Of the op that wrote over it, whose new value has its bytes; or of the first op after the
  // program let go of it; the number of ops when it never did. Its bytes are live in [born, dies).
  std::uint32_t dies = 0;
  std::vector<std::uint32_t> readers;  // ascending positions of the ops that need its bytes
  Bytes size{0};
  bool recomputable = false;  // a replay of its producer gives it back
  bool external = false;      // made outside the pool
  bool kept = false;          // pinned or escaped at some time: it must stay
};

struct GraphOp {
  std::uint32_t op = 0;                // into Trace::ops
  std::vector<std::uint32_t> inputs;   // distinct values that it needs
  std::vector<std::uint32_t> outputs;  // values that it makes: fresh ones in order, then written
};

struct TraceGraph {
  std::vector<GraphOp> ops;
  std::vector<GraphValue> values;        // in the order of their birth
  std::vector<std::uint32_t> step_ends;  // of each marked step: the position behind its last op
};

// `trace` must be valid. `small_leaf`: results up to this size are never recomputed, see Options.
TraceGraph build_graph(const Trace& trace, Bytes small_leaf);

}  // namespace recoup::detail
