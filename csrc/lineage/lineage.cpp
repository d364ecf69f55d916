#include "csrc/lineage/lineage.h"

#include <algorithm>
#include <unordered_map>

namespace recoup::detail {

OpId Lineage::add_op(std::span<const ValueId> inputs) {
  const auto [id, op] = ops_.emplace();
  op.sequence = next_sequence_++;
  op.inputs.reserve(inputs.size());
  for (ValueId input : inputs) {
    const auto [edge_id, edge] = edges_.emplace();
    Value& value = values_[input];
    edge = {.value = input, .op = id, .next = value.consumers, .previous = EdgeId()};
    if (value.consumers.valid()) {
      edges_[value.consumers].previous = edge_id;
    }
    value.consumers = edge_id;
    op.inputs.push_back(edge_id);
    if (value.producer.valid()) {
      op.depth = std::max(op.depth, ops_[value.producer].depth + 1);
    }
  }
  return id;
}

void Lineage::add_output(OpId op, ValueId value) {
  Op& record = ops_[op];
  record.outputs.push_back(value);
  if (value.valid()) {
    ++record.live_outputs;
    values_[value].producer = op;
  }
}

void Lineage::add_written(OpId op, WrittenValue written) {
  ops_[op].written.push_back(written);
  ++ops_[op].live_outputs;
  values_[written.after].producer = op;
}

OpId Lineage::cut(ValueId value) {
  const OpId producer = values_[value].producer;
  if (!producer.valid()) {
    return {};
  }
  values_[value].producer = OpId();
  Op& op = ops_[producer];
  op.forgotten += values_[value].size;
  for (ValueId& output : op.outputs) {
    if (output == value) {
      output = ValueId();
    }
  }
  for (WrittenValue& written : op.written) {
    if (written.after == value) {
      written.after = ValueId();
    }
  }
  return --op.live_outputs == 0 ? producer : OpId();
}

void Lineage::remove_value(ValueId id) {
  RECOUP_CHECK(!values_[id].producer.valid() && !values_[id].consumers.valid());
  values_.remove(id);
}

void Lineage::set_cost(OpId id, Nanoseconds cost) {
  total_cost_ += cost - ops_[id].cost;
  ops_[id].cost = cost;
}

bool Lineage::is_wanted(ValueId id) const {
  return id.valid() && values_[id].evicted() && values_[id].needed();
}

bool Lineage::should_demand(const Op& op) const {
  return std::any_of(op.outputs.begin(), op.outputs.end(),
                     [this](ValueId id) { return is_wanted(id); }) ||
         std::any_of(op.written.begin(), op.written.end(),
                     [this](const WrittenValue& each) { return is_wanted(each.after); });
}

void Lineage::update_demand(ValueId changed, std::vector<ValueId>& useless) {
  demand_work_.push_back(changed);
  pass_demand_on(useless);
}

void Lineage::update_demand_after_cut(OpId producer, std::vector<ValueId>& useless) {
  if (ops_[producer].demanding && !should_demand(ops_[producer])) {
    set_demanding(producer, false, useless);
    pass_demand_on(useless);
  }
}

// An op of a list has hundreds of outputs: the others are looked at only if they matter.
void Lineage::pass_demand_on(std::vector<ValueId>& useless) {
  while (!demand_work_.empty()) {
    const ValueId id = demand_work_.back();
    demand_work_.pop_back();
    if (const OpId producer = values_[id].producer; producer.valid()) {
      const Op& op = ops_[producer];
      set_demanding(producer, is_wanted(id) || (op.demanding && should_demand(op)), useless);
    }
  }
}

void Lineage::set_demanding(OpId id, bool demanding, std::vector<ValueId>& useless) {
  Op& op = ops_[id];
  if (op.demanding == demanding) {
    return;
  }
  op.demanding = demanding;
  for (EdgeId edge : op.inputs) {
    const ValueId input = edges_[edge].value;
    Value& value = values_[input];
    const bool was_needed = value.needed();
    value.demand += demanding ? 1 : -1;
    if (value.needed() == was_needed) {
      continue;
    }
    if (value.evicted()) {
      demand_work_.push_back(input);
    } else if (value.has_content() && !value.needed()) {
      useless.push_back(input);
    }
  }
}

// After 2^32 traversals, marks would be used again that records still have.
void Lineage::forget_marks() const {
  for_each_value([](ValueId, const Value& value) { value.mark = 0; });
  for_each_op([](OpId, const Op& op) { op.mark = 0; });
  mark_ = 1;
}

void Lineage::check() const {
  std::unordered_map<ValueId, std::int32_t> demand;
  std::unordered_map<ValueId, std::int64_t> consumers;
  Nanoseconds cost{0};
  ops_.for_each([&](OpId id, const Op& op) {
    cost += op.cost;
    std::int32_t live = 0;
    for_each_output(id, [&](ValueId output) {
      ++live;
      RECOUP_CHECK(values_.contains(output) && values_[output].producer == id, "output ",
                   output.index(), " of op ", id.index());
    });
    RECOUP_CHECK(live == op.live_outputs && live > 0, "op ", id.index(), " counts ",
                 op.live_outputs, " outputs and has ", live);
    RECOUP_CHECK(op.demanding == should_demand(op), "op ", id.index());
    for (EdgeId edge : op.inputs) {
      RECOUP_CHECK(edges_[edge].op == id);
      ++consumers[edges_[edge].value];
      demand[edges_[edge].value] += op.demanding ? 1 : 0;
      RECOUP_CHECK(values_[edges_[edge].value].residency != Residency::kLost, "op ", id.index(),
                   " reads value ", edges_[edge].value.index(), ", which is lost");
    }
  });
  RECOUP_CHECK(cost == total_cost_);
  values_.for_each([&](ValueId id, const Value& value) {
    std::int64_t listed = 0;
    for_each_consumer(id, [&](OpId) { ++listed; });
    RECOUP_CHECK(listed == consumers[id], "value ", id.index(), " lists ", listed,
                 " consumers and has ", consumers[id]);
    RECOUP_CHECK(value.demand == demand[id], "value ", id.index(), " counts demand ", value.demand,
                 " and has ", demand[id]);
    RECOUP_CHECK(!value.producer.valid() || ops_.contains(value.producer));
    RECOUP_CHECK(!value.evicted() || value.producer.valid(), "value ", id.index(),
                 " is evicted and has no producer");
  });
}

}  // namespace recoup::detail
