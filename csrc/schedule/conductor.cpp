#include "csrc/schedule/conductor.h"

#include <algorithm>
#include <utility>

namespace recoup::detail {

StepPlan::StepPlan(ScheduleKind kind, TraceGraph step, std::span<const std::string> names,
                   Bytes budget)
    : graph(std::move(step)),
      schedule(plan_schedule(kind, {.graph = graph, .names = names, .budget = budget})),
      restores(graph.ops.size()),
      drops(graph.ops.size()) {
  for (std::uint32_t value = 0; value < schedule.kept.size(); ++value) {
    const std::vector<Interval>& kept = schedule.kept[value];
    for (const Interval& interval : kept) {
      if (&interval != kept.data() && interval.from < graph.ops.size()) {
        restores[interval.from].push_back(value);
      }
      if (interval.to <= graph.ops.size()) {
        drops[interval.to - 1].push_back(value);
      }
    }
  }
}

ScheduleConductor::ScheduleConductor(Engine& engine, ScheduleKind kind, Bytes budget)
    : engine_(engine), kind_(kind), budget_(budget), builder_(engine.options().small_leaf) {}

std::uint32_t ScheduleConductor::name_index(std::string_view name) {
  const auto [found, is_new] =
      name_indexes_.try_emplace(std::string(name), static_cast<std::uint32_t>(names_.size()));
  if (is_new) {
    names_.emplace_back(name);
  }
  return found->second;
}

// The plan's op at this place may still turn out to be another one; then its values come back for
// nothing, which costs time but no bits.
void ScheduleConductor::before_op(std::string_view name, std::span<const Operand> /*operands*/) {
  const std::uint32_t op = position();
  if (plan() == nullptr || op >= plan()->graph.ops.size() || plan()->restores[op].empty() ||
      names_[plan()->graph.ops[op].name] != name) {
    return;
  }
  std::vector<ValueTicket> tickets;
  for (const std::uint32_t value : plan()->restores[op]) {
    tickets.push_back(tickets_[value]);
  }
  engine_.restore(tickets);
  for (const std::uint32_t value : plan()->restores[op]) {
    if (!keep_until(value, op)) {
      engine_.keep(tickets_[value], false);
    }
  }
}

void ScheduleConductor::on_op_begin(std::string_view name, std::span<const Operand> /*operands*/) {
  running_name_ = name_index(name);
}

void ScheduleConductor::on_op_end(const OpRecord& record, std::span<const Operand> operands,
                                  std::span<const StorageId> fresh) {
  write_down(record, operands, fresh);
  check_plan();
}

void ScheduleConductor::write_down(const OpRecord& record, std::span<const Operand> operands,
                                   std::span<const StorageId> fresh) {
  std::vector<TraceOperand> uses;
  for (const Operand& operand : operands) {
    if (!operand.storage.valid()) {
      continue;
    }
    const std::uint32_t storage = operand.storage.index();
    if (!builder_.knows(storage)) {
      const Value& value = engine_.value(engine_.current(operand.storage));
      builder_.add_leaf(storage, value.nbytes, value.external != nullptr);
    }
    uses.push_back({.storage = storage,
                    .reads = operand.reads,
                    .written = operand.written,
                    .overwritten = operand.overwritten,
                    .left_out = operand.left_out});
  }
  std::vector<GraphBuilder::Fresh> made;
  for (std::size_t i = 0; i < fresh.size(); ++i) {
    builder_.end_storage(fresh[i].index());
    made.push_back({.storage = fresh[i].index(), .size = record.fresh[i].nbytes});
  }
  builder_.add_op({.op = position(),
                   .name = running_name_,
                   .cost = record.cost,
                   .workspace = record.workspace,
                   .inputs = {},
                   .outputs = {}},
                  uses, made, record.repeatable);
  const TraceGraph& graph = builder_.graph();
  tickets_.resize(graph.values.size());
  for (const std::uint32_t id : graph.ops.back().outputs) {
    const StorageId storage(graph.values[id].storage);
    const ValueTicket ticket = engine_.ticket(engine_.current(storage));
    if (ticket.value.valid()) {
      tickets_[id] = ticket;
      by_value_[ticket.value.index()] = id;
      if (ops_.empty() || ops_.back().first != ticket.made_by) {
        ops_.emplace_back(ticket.made_by, position() - 1);
      }
    }
  }
}

bool ScheduleConductor::agrees(const StepPlan& plan, std::uint32_t op) const {
  if (op >= plan.graph.ops.size()) {
    return false;
  }
  const GraphOp& seen = builder_.graph().ops[op];
  const GraphOp& planned = plan.graph.ops[op];
  return seen.name == planned.name && seen.inputs == planned.inputs &&
         seen.outputs == planned.outputs &&
         std::all_of(seen.outputs.begin(), seen.outputs.end(), [&](std::uint32_t id) {
           return builder_.graph().values[id].size == plan.graph.values[id].size;
         });
}

void ScheduleConductor::check_plan() {
  if (plan() == nullptr || agrees(*plan(), position() - 1)) {
    return;
  }
  let_go();
  for (std::size_t i = 0; i < plans_.size(); ++i) {
    bool all = true;
    for (std::uint32_t op = position(); all && op-- > 0;) {
      all = agrees(plans_[i], op);
    }
    if (all) {
      plan_ = i;
      return;
    }
  }
  plan_ = kNoPlan;
}

void ScheduleConductor::after_op() {
  if (plan() != nullptr) {
    ++driven_;
    const std::uint32_t op = position() - 1;
    for (const std::uint32_t value : builder_.graph().ops[op].outputs) {
      keep_until(value, op + 1);
    }
    for (const std::uint32_t value : plan()->drops[op]) {
      drop(value);
    }
    for (const std::uint64_t sequence : replayed_) {
      const auto found = std::lower_bound(ops_.begin(), ops_.end(), std::pair{sequence, 0U});
      if (found == ops_.end() || found->first != sequence) {
        continue;  // of an earlier step
      }
      for (const std::uint32_t value : builder_.graph().ops[found->second].outputs) {
        if (!plan()->schedule.kept[value].empty() && !kept_at(value, op + 1)) {
          drop(value);
        }
      }
    }
  }
  replayed_.clear();
}

// The engine lets a value go when nobody needs it. False: the program itself holds this one for as
// long as the schedule wants it.
bool ScheduleConductor::keep_until(std::uint32_t value, std::uint32_t op) {
  const std::vector<Interval>& kept = plan()->schedule.kept[value];
  const bool ends = std::any_of(kept.begin(), kept.end(), [op](const Interval& interval) {
    return interval.from <= op && op < interval.to && interval.to != Interval::kOpen;
  });
  if (ends) {
    engine_.keep(tickets_[value], true);
    kept_.push_back(value);
  }
  return ends;
}

void ScheduleConductor::drop(std::uint32_t value) {
  engine_.drop(tickets_[value]);
  engine_.keep(tickets_[value], false);
}

bool ScheduleConductor::kept_at(std::uint32_t value, std::uint32_t op) const {
  const std::vector<Interval>& kept = plan()->schedule.kept[value];
  return std::any_of(kept.begin(), kept.end(), [op](const Interval& interval) {
    return interval.from <= op && op < interval.to;
  });
}

bool ScheduleConductor::keeps(const ValueTicket& ticket) const {
  if (plan() == nullptr || !ticket.value.valid()) {
    return true;
  }
  const auto found = by_value_.find(ticket.value.index());
  if (found == by_value_.end() || tickets_[found->second].made_by != ticket.made_by) {
    return true;  // of an earlier step
  }
  const std::uint32_t value = found->second;
  return plan()->schedule.kept[value].empty() || kept_at(value, position()) ||
         kept_at(value, position() + 1);
}

void ScheduleConductor::on_replay(std::string_view /*name*/, std::uint64_t sequence,
                                  Nanoseconds /*cost*/) {
  if (plan() != nullptr) {
    replayed_.push_back(sequence);
  }
}

void ScheduleConductor::let_go() {
  for (const std::uint32_t value : std::exchange(kept_, {})) {
    engine_.keep(tickets_[value], false);
  }
}

void ScheduleConductor::on_step(std::string_view /*name*/) { end_step(); }

void ScheduleConductor::end_step() {
  let_go();
  const bool whole = plan() != nullptr && position() == plan()->graph.ops.size();
  if (whole) {
    std::rotate(plans_.begin(), plans_.begin() + static_cast<std::ptrdiff_t>(plan_),
                plans_.begin() + static_cast<std::ptrdiff_t>(plan_) + 1);
    (void)builder_.take();
  } else if (position() > 0) {
    plans_.insert(plans_.begin(), StepPlan(kind_, builder_.take(), names_, budget_));
    if (plans_.size() > kMostPlans) {
      plans_.pop_back();
    }
  }
  plan_ = plans_.empty() ? kNoPlan : 0;
  tickets_.clear();
  by_value_.clear();
  ops_.clear();
  replayed_.clear();
}

ScheduleConductor::Plans ScheduleConductor::take_plans() {
  return {.names = std::exchange(names_, {}), .plans = std::exchange(plans_, {})};
}

void ScheduleConductor::set_plans(Plans plans) {
  names_.clear();
  name_indexes_.clear();
  for (const std::string& name : plans.names) {
    (void)name_index(name);
  }
  plans_ = std::move(plans.plans);
  plan_ = plans_.empty() ? kNoPlan : 0;
}

}  // namespace recoup::detail
