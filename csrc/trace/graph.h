// A trace as planners see it: ops in the order of the program, and the values between them.
//
// Positions count the ops that did not fail, from 0. A write makes a new value of the same storage,
// as in the lineage graph; what an op wrote in passing is a value that nothing can recompute.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "recoup/api.h"
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
  bool escaped = false;       // what is made from it afterwards cannot be recomputed
};

struct GraphOp {
  std::uint32_t op = 0;    // into Trace::ops
  std::uint32_t name = 0;  // into Trace::names
  Nanoseconds cost{0};
  Bytes workspace{0};
  std::vector<std::uint32_t> inputs;   // distinct values that it needs
  std::vector<std::uint32_t> outputs;  // values that it makes: fresh ones in order, then written
};

struct TraceGraph {
  std::vector<GraphOp> ops;
  std::vector<GraphValue> values;        // in the order of their birth
  std::vector<std::uint32_t> step_ends;  // of each marked step: the position behind its last op
  // What lives when the scope is left behind the last op, and gets its bytes back then.
  std::vector<std::uint32_t> at_exit;
};

// Builds a graph op by op. Storages have any numbers; one that ended may be used again.
class GraphBuilder {
 public:
  explicit GraphBuilder(Bytes small_result_bytes) : small_result_bytes_(small_result_bytes) {}

  struct Fresh {
    std::uint32_t storage = 0;
    Bytes size{0};
  };
  // The storage has a value.
  [[nodiscard]] bool knows(std::uint32_t storage) const {
    return storage < current_.size() && current_[storage] != GraphValue::kNone;
  }
  // Of a storage that is known.
  [[nodiscard]] std::uint32_t current(std::uint32_t storage) const { return current_[storage]; }
  void add_source(std::uint32_t storage, Bytes size, bool external);
  // All storages of `operands` must be known. `node` has what is the op's own.
  void add_op(GraphOp node, std::span<const TraceOperand> operands, std::span<const Fresh> fresh,
              bool repeatable);
  // Nothing happens where the storage is not known.
  void end_storage(std::uint32_t storage);
  void keep(std::uint32_t storage);
  void escape(std::uint32_t storage);
  void leave(std::uint32_t storage);  // the pool
  // The scope is left: what lives is what is settled, unless an op follows.
  void exit_scope();
  void end_step() { graph_.step_ends.push_back(now()); }
  [[nodiscard]] const TraceGraph& graph() const { return graph_; }
  // Ends what is left, and starts anew.
  TraceGraph take();

 private:
  [[nodiscard]] std::uint32_t now() const { return static_cast<std::uint32_t>(graph_.ops.size()); }
  [[nodiscard]] GraphValue& value_of(std::uint32_t storage) {
    return graph_.values[current_[storage]];
  }
  GraphValue& add_value(std::uint32_t storage, Bytes size);
  void add_version(const TraceOperand& operand, GraphOp& node, bool recomputable);
  [[nodiscard]] bool recordable(std::span<const TraceOperand> operands);

  Bytes small_result_bytes_;
  TraceGraph graph_;
  std::vector<std::uint32_t> current_;  // value by storage
};

// `trace` must be valid. `small_result_bytes`: results up to this size are never recomputed, see
// Options.
RECOUP_API TraceGraph build_graph(const Trace& trace, Bytes small_result_bytes);

}  // namespace recoup::detail
