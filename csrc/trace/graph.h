// TraceGraph: a trace as planners need it, with ops in the order of the program and the values
// between them.
//
// Positions count the ops that did not fail, from 0. A write makes a new value of the same storage,
// as in the lineage graph. What an op writes as a side effect is a value that cannot be recomputed.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "recoup/api.h"
#include "recoup/trace.h"

namespace recoup::detail {

struct GraphValue {
  static constexpr std::uint32_t kNone = 0xffffffff;

  std::uint32_t storage = 0;       // number of the storage in the trace
  std::uint32_t producer = kNone;  // position of the op that made it; kNone: external
  std::uint32_t born = 0;  // position of the first op at or after its birth: the producer, if any
  // Position of the op that wrote over it and whose new value has its bytes; or of the first op
  // after the program freed it; or the number of ops if it never did. The value is live in [born,
  // dies).
  std::uint32_t dies = 0;
  std::vector<std::uint32_t> readers;  // ascending positions of the ops that need its bytes
  Bytes size{0};
  bool recomputable = false;  // a replay of its producer restores it
  bool external = false;      // its storage is external
  bool kept = false;          // pinned or escaped at some time: it must stay resident
  bool escaped = false;       // values that are computed from it afterwards cannot be recomputed
};

struct GraphOp {
  std::uint32_t op = 0;    // index into Trace::ops
  std::uint32_t name = 0;  // index into Trace::names
  Nanoseconds cost{0};
  Bytes workspace{0};
  std::vector<std::uint32_t> inputs;  // distinct values that it needs
  // Values that it makes: new storages in order, then written ones.
  std::vector<std::uint32_t> outputs;
};

struct TraceGraph {
  std::vector<GraphOp> ops;
  std::vector<GraphValue> values;  // in the order of their birth
  // For each marked step, one past the position of its last op.
  std::vector<std::uint32_t> step_ends;
  // Values that are live when the scope exits after the last op, and become resident then.
  std::vector<std::uint32_t> at_exit;
};

// Builds a graph op by op. Storages may have any numbers; the number of a storage that died may be
// reused.
class GraphBuilder {
 public:
  explicit GraphBuilder(Bytes small_result_bytes) : small_result_bytes_(small_result_bytes) {}

  struct Fresh {
    std::uint32_t storage = 0;
    Bytes size{0};
  };
  // Whether the storage has a value.
  [[nodiscard]] bool knows(std::uint32_t storage) const {
    return storage < current_.size() && current_[storage] != GraphValue::kNone;
  }
  // The value of a known storage.
  [[nodiscard]] std::uint32_t current(std::uint32_t storage) const { return current_[storage]; }
  void add_source(std::uint32_t storage, Bytes size, bool external);
  // All storages of `operands` must be known. `node` has the fields that concern only the op.
  void add_op(GraphOp node, std::span<const TraceOperand> operands, std::span<const Fresh> fresh,
              bool repeatable);
  // These have no effect if the storage is not known.
  void end_storage(std::uint32_t storage);
  void keep(std::uint32_t storage);
  void escape(std::uint32_t storage);
  void leave(std::uint32_t storage);  // leaves the pool
  // The scope exits: all live values become resident, unless an op follows.
  void exit_scope();
  void end_step() { graph_.step_ends.push_back(now()); }
  [[nodiscard]] const TraceGraph& graph() const { return graph_; }
  // Ends the remaining values and returns the graph. The builder is empty afterwards.
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

// `trace` must be valid. Results of up to `small_result_bytes` are never recomputed, see Options.
RECOUP_API TraceGraph build_graph(const Trace& trace, Bytes small_result_bytes);

}  // namespace recoup::detail
