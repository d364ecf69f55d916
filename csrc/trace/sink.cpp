#include "csrc/trace/sink.h"

namespace recoup::detail {

void tell(const Trace& trace, TraceSink& sink) {
  if (trace.device != TraceDevice()) {
    sink.set_device(trace.device);
  }
  for (const std::string& name : trace.names) {
    sink.add_name(name);
  }
  for (const std::vector<KernelStep>& kernel : trace.kernels) {
    sink.add_kernel(kernel);
  }
  for (const TraceEvent& event : trace.events) {
    if (event.kind == TraceEvent::Kind::kOp) {
      const TraceOp& op = trace.ops[event.index];
      sink.add_op(op, trace.operands_of(op), trace.fresh_of(op));
    } else if (event.kind == TraceEvent::Kind::kPlan) {
      const TracePlan& plan = trace.plans[event.index];
      sink.add_plan(plan, trace.lists_of(plan));
    } else if (event.kind == TraceEvent::Kind::kParts) {
      const TraceListOp& op = trace.list_ops[event.index];
      sink.add_list_op(op, trace.parts_of(op), trace.operands_of(op));
    } else {
      sink.add_event(event);
    }
  }
}

void TraceBuilder::add_op(const TraceOp& op, std::span<const TraceOperand> operands,
                          std::span<const TraceFresh> fresh) {
  TraceOp added = op;
  added.first_operand = static_cast<std::uint32_t>(trace_.operands.size());
  added.operand_count = static_cast<std::uint32_t>(operands.size());
  added.first_fresh = static_cast<std::uint32_t>(trace_.fresh.size());
  added.fresh_count = static_cast<std::uint32_t>(fresh.size());
  trace_.operands.insert(trace_.operands.end(), operands.begin(), operands.end());
  trace_.fresh.insert(trace_.fresh.end(), fresh.begin(), fresh.end());
  trace_.events.push_back({.kind = TraceEvent::Kind::kOp,
                           .index = static_cast<std::uint32_t>(trace_.ops.size()),
                           .size = Bytes(0)});
  trace_.ops.push_back(added);
}

void TraceBuilder::add_plan(const TracePlan& plan, const TracePlanLists& lists) {
  TracePlan added = plan;
  added.first_eviction = static_cast<std::uint32_t>(trace_.evictions.size());
  added.eviction_count = static_cast<std::uint32_t>(lists.evictions.size());
  added.first_block = static_cast<std::uint32_t>(trace_.blocks.size());
  added.block_count = static_cast<std::uint32_t>(lists.blocks.size());
  added.first_start = static_cast<std::uint32_t>(trace_.starts.size());
  added.start_count = static_cast<std::uint32_t>(lists.starts.size());
  trace_.evictions.insert(trace_.evictions.end(), lists.evictions.begin(), lists.evictions.end());
  trace_.blocks.insert(trace_.blocks.end(), lists.blocks.begin(), lists.blocks.end());
  trace_.starts.insert(trace_.starts.end(), lists.starts.begin(), lists.starts.end());
  trace_.events.push_back({.kind = TraceEvent::Kind::kPlan,
                           .index = static_cast<std::uint32_t>(trace_.plans.size()),
                           .size = Bytes(0)});
  trace_.plans.push_back(added);
}

void TraceBuilder::add_list_op(const TraceListOp& op, std::span<const TracePart> parts,
                               std::span<const TracePartOperand> operands) {
  TraceListOp added = op;
  added.first_part = static_cast<std::uint32_t>(trace_.parts.size());
  added.part_count = static_cast<std::uint32_t>(parts.size());
  auto first_operand = static_cast<std::uint32_t>(trace_.part_operands.size());
  for (TracePart part : parts) {
    part.first_operand = first_operand;
    first_operand += part.operand_count;
    trace_.parts.push_back(part);
  }
  trace_.part_operands.insert(trace_.part_operands.end(), operands.begin(), operands.end());
  trace_.events.push_back({.kind = TraceEvent::Kind::kParts,
                           .index = static_cast<std::uint32_t>(trace_.list_ops.size()),
                           .size = Bytes(0)});
  trace_.list_ops.push_back(added);
}

}  // namespace recoup::detail
