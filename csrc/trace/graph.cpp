#include "csrc/trace/graph.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace recoup::detail {

GraphValue& GraphBuilder::add_value(std::uint32_t storage, Bytes size) {
  if (storage >= current_.size()) {
    current_.resize(storage + std::size_t{1}, GraphValue::kNone);
  }
  current_[storage] = static_cast<std::uint32_t>(graph_.values.size());
  GraphValue& value = graph_.values.emplace_back();
  value.storage = storage;
  value.born = now();
  value.size = size;
  return value;
}

void GraphBuilder::add_source(std::uint32_t storage, Bytes size, bool external) {
  add_value(storage, size).external = external;
}

void GraphBuilder::end_storage(std::uint32_t storage) {
  if (knows(storage)) {
    value_of(storage).dies = now();
    current_[storage] = GraphValue::kNone;
  }
}

void GraphBuilder::keep(std::uint32_t storage) {
  if (knows(storage)) {
    value_of(storage).kept = true;
  }
}

void GraphBuilder::escape(std::uint32_t storage) {
  if (knows(storage)) {
    value_of(storage).kept = true;
    value_of(storage).escaped = true;
  }
}

void GraphBuilder::leave(std::uint32_t storage) {
  if (knows(storage)) {
    value_of(storage).external = true;
  }
}

// Follows the rules of Records::recordable.
bool GraphBuilder::recordable(std::span<const TraceOperand> operands) {
  return std::none_of(operands.begin(), operands.end(), [this](const TraceOperand& operand) {
    const GraphValue& value = value_of(operand.storage);
    const bool writes = operand.written && !operand.left_out;
    return value.escaped ||
           (writes && (value.external || (!value.recomputable && !operand.overwritten)));
  });
}

void GraphBuilder::add_op(GraphOp node, std::span<const TraceOperand> operands,
                          std::span<const Fresh> fresh, bool repeatable) {
  const bool recomputable = repeatable && recordable(operands);
  for (const TraceOperand& operand : operands) {
    const bool changes = operand.written && !operand.overwritten && !operand.left_out;
    if (operand.reads || changes) {
      node.inputs.push_back(current_[operand.storage]);
      value_of(operand.storage).readers.push_back(now());
    }
  }
  for (const Fresh& each : fresh) {
    GraphValue& value = add_value(each.storage, each.size);
    value.producer = now();
    value.recomputable = recomputable && each.size > small_result_bytes_;
    node.outputs.push_back(current_[each.storage]);
  }
  for (const TraceOperand& operand : operands) {
    if (operand.written) {
      add_version(operand, node, recomputable);
    }
  }
  graph_.ops.push_back(std::move(node));
  graph_.at_exit.clear();
}

void GraphBuilder::add_version(const TraceOperand& operand, GraphOp& node, bool recomputable) {
  GraphValue& before = value_of(operand.storage);
  before.dies = now();  // its bytes belong to the new value
  const bool external = before.external;
  const Bytes size = before.size;
  GraphValue& value = add_value(operand.storage, size);  // invalidates `before`
  value.producer = now();
  value.external = external;
  value.recomputable = recomputable && !operand.left_out && !external;
  node.outputs.push_back(current_[operand.storage]);
}

void GraphBuilder::exit_scope() {
  graph_.at_exit.clear();
  std::copy_if(current_.begin(), current_.end(), std::back_inserter(graph_.at_exit),
               [](std::uint32_t value) { return value != GraphValue::kNone; });
}

TraceGraph GraphBuilder::take() {
  for (std::uint32_t storage = 0; storage < current_.size(); ++storage) {
    end_storage(storage);
  }
  current_.clear();
  return std::exchange(graph_, {});
}

TraceGraph build_graph(const Trace& trace, Bytes small_result_bytes) {
  using Kind = TraceEvent::Kind;
  GraphBuilder builder(small_result_bytes);
  std::uint32_t storages = 0;
  std::vector<GraphBuilder::Fresh> fresh;
  for (const TraceEvent& event : trace.events) {
    switch (event.kind) {
      case Kind::kExternal:
      case Kind::kAdopt:
        builder.add_source(storages++, event.size, event.kind == Kind::kExternal);
        break;
      case Kind::kDie:
      case Kind::kDisown:
        builder.end_storage(event.index);
        break;
      case Kind::kOp: {
        const TraceOp& op = trace.ops[event.index];
        fresh.clear();
        for (const TraceFresh& each : trace.fresh_of(op)) {
          fresh.push_back({.storage = storages++, .size = each.nbytes});
        }
        if (!op.failed) {
          builder.add_op({.op = event.index,
                          .name = op.name,
                          .cost = op.cost,
                          .workspace = op.workspace,
                          .inputs = {},
                          .outputs = {}},
                         trace.operands_of(op), fresh, op.repeatable);
        }
        break;
      }
      case Kind::kEscape:
        builder.escape(event.index);
        break;
      case Kind::kLeave:
        builder.leave(event.index);
        break;
      case Kind::kPin:
        builder.keep(event.index);
        break;
      case Kind::kStep:
        builder.end_step();
        break;
      case Kind::kScopeExit:
        builder.exit_scope();
        break;
      default:  // also kEscapeEnd, after which the last address stays
        break;
    }
  }
  return builder.take();
}

}  // namespace recoup::detail
