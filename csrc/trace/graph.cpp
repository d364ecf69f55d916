#include "csrc/trace/graph.h"

#include <algorithm>

namespace recoup::detail {
namespace {

using Kind = TraceEvent::Kind;

class GraphBuilder {
 public:
  GraphBuilder(const Trace& trace, Bytes small_leaf) : trace_(trace), small_leaf_(small_leaf) {}

  TraceGraph build() {
    for (const TraceEvent& event : trace_.events) {
      apply(event);
    }
    for (const std::uint32_t value : current_) {
      if (value != GraphValue::kNone) {
        graph_.values[value].dies = now();
      }
    }
    return std::move(graph_);
  }

 private:
  [[nodiscard]] std::uint32_t now() const { return static_cast<std::uint32_t>(graph_.ops.size()); }
  [[nodiscard]] GraphValue& current(std::uint32_t storage) {
    return graph_.values[current_[storage]];
  }

  std::uint32_t add_value(std::uint32_t storage, Bytes size) {
    graph_.values.emplace_back();
    GraphValue& value = graph_.values.back();
    value.storage = storage;
    value.born = now();
    value.size = size;
    return static_cast<std::uint32_t>(graph_.values.size() - 1);
  }
  void add_storage(Bytes size, bool external) {
    current_.push_back(add_value(static_cast<std::uint32_t>(current_.size()), size));
    graph_.values.back().external = external;
  }

  void apply(const TraceEvent& event) {
    switch (event.kind) {
      case Kind::kExternal:
      case Kind::kAdopt:
        add_storage(event.size, event.kind == Kind::kExternal);
        break;
      case Kind::kDie:
      case Kind::kForsake:
        current(event.index).dies = now();
        current_[event.index] = GraphValue::kNone;
        break;
      case Kind::kOp:
        if (!trace_.ops[event.index].failed) {
          add_op(event.index);
        }
        break;
      case Kind::kEscape:
      case Kind::kPin:
        current(event.index).kept = true;
        break;
      case Kind::kStep:
        graph_.step_ends.push_back(now());
        break;
      case Kind::kAllocate:
      case Kind::kFree:
      case Kind::kUnpin:
      case Kind::kEvict:
      case Kind::kSettle:
        break;
    }
  }

  // By the rules of Engine::recordable.
  [[nodiscard]] bool repeatable(const TraceOp& op) {
    const auto operands = trace_.operands_of(op);
    return op.repeatable &&
           std::none_of(operands.begin(), operands.end(), [this](const TraceOperand& operand) {
             const GraphValue& value = current(operand.storage);
             const bool writes = operand.written && !operand.left_out;
             return value.kept ||
                    (writes && (value.external || (!value.recomputable && !operand.overwritten)));
           });
  }

  void add_op(std::uint32_t index) {
    const TraceOp& op = trace_.ops[index];
    const bool again = repeatable(op);
    GraphOp node{.op = index, .inputs = {}, .outputs = {}};
    for (const TraceOperand& operand : trace_.operands_of(op)) {
      const bool changes = operand.written && !operand.overwritten && !operand.left_out;
      if (operand.reads || changes) {
        node.inputs.push_back(current_[operand.storage]);
        current(operand.storage).readers.push_back(now());
      }
    }
    for (const TraceFresh& fresh : trace_.fresh_of(op)) {
      add_storage(fresh.nbytes, false);
      node.outputs.push_back(current_.back());
      graph_.values.back().producer = now();
      graph_.values.back().recomputable = again && fresh.nbytes > small_leaf_;
    }
    for (const TraceOperand& operand : trace_.operands_of(op)) {
      if (operand.written) {
        node.outputs.push_back(add_version(operand, again));
      }
    }
    graph_.ops.push_back(std::move(node));
  }

  std::uint32_t add_version(const TraceOperand& operand, bool again) {
    GraphValue& before = current(operand.storage);
    before.dies = now();
    const bool external = before.external;
    const Bytes size = before.size;
    const std::uint32_t after = add_value(operand.storage, size);  // invalidates `before`
    current_[operand.storage] = after;
    GraphValue& value = graph_.values[after];
    value.producer = now();
    value.external = external;
    value.recomputable = again && !operand.left_out && !external;
    return after;
  }

  const Trace& trace_;
  Bytes small_leaf_;
  TraceGraph graph_;
  std::vector<std::uint32_t> current_;  // value by storage
};

}  // namespace

TraceGraph build_graph(const Trace& trace, Bytes small_leaf) {
  return GraphBuilder(trace, small_leaf).build();
}

}  // namespace recoup::detail
