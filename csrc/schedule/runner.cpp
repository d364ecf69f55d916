#include "csrc/schedule/runner.h"

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

ScheduleRunner::ScheduleRunner(Engine& engine, ScheduleKind kind, Bytes budget,
                               std::size_t most_ops)
    : engine_(engine),
      kind_(kind),
      budget_(budget),
      most_ops_(most_ops),
      builder_(engine.options().small_result_bytes) {}

std::uint32_t ScheduleRunner::name_index(std::string_view name) {
  const auto [found, is_new] =
      name_indexes_.try_emplace(std::string(name), static_cast<std::uint32_t>(names_.size()));
  if (is_new) {
    names_.emplace_back(name);
  }
  return found->second;
}

// The op that starts may still differ from the plan's op. Its values are then restored in vain,
// which costs time but does not change results.
void ScheduleRunner::before_op(std::string_view name, std::span<const Operand> /*operands*/) {
  const StepPlan* const plan = following_.plan;
  const std::uint32_t op = following_.next;
  if (plan == nullptr || following_.ended() || plan->restores[op].empty() ||
      names_[plan->graph.ops[op].name] != name) {
    return;
  }
  std::vector<ValueTicket> tickets;
  for (const std::uint32_t value : plan->restores[op]) {
    tickets.push_back(ticket(value));
  }
  const std::uint32_t start = following_.start;
  engine_.schedule().restore(tickets);
  // During the restore, an op of another thread may have ended, so that the plan is no longer
  // followed.
  const bool follows = following_.plan == plan && following_.start == start;
  for (std::size_t i = 0; i < tickets.size(); ++i) {
    if (!follows || !keep_until(plan->restores[op][i], op)) {
      engine_.schedule().keep(tickets[i], false);
    }
  }
}

void ScheduleRunner::on_op_begin(std::string_view name, std::span<const Operand> /*operands*/) {
  running_[std::this_thread::get_id()] = name_index(name);
}

void ScheduleRunner::on_op_end(const OpRecord& record, std::span<const Operand> operands,
                               std::span<const StorageId> fresh) {
  if (position() == most_ops_) {
    let_go();
    (void)builder_.take();
    forget_step();
    too_long_ = true;
  }
  if (!too_long_) {
    write_down(record, operands, fresh);
    find_plan();
  }
}

void ScheduleRunner::write_down(const OpRecord& record, std::span<const Operand> operands,
                                std::span<const StorageId> fresh) {
  std::vector<TraceOperand> uses;
  for (const Operand& operand : operands) {
    if (!operand.storage.valid()) {
      continue;
    }
    const std::uint32_t storage = operand.storage.index();
    if (!builder_.knows(storage)) {
      const Value& value = engine_.value(engine_.current(operand.storage));
      builder_.add_source(storage, value.nbytes, value.external != nullptr);
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
                   .name = running_.at(std::this_thread::get_id()),
                   .cost = record.cost,
                   .workspace = record.workspace,
                   .inputs = {},
                   .outputs = {}},
                  uses, made, record.repeatable && record.why != NoReplay::kOverflow);
  const TraceGraph& graph = builder_.graph();
  tickets_.resize(graph.values.size());
  for (const std::uint32_t id : graph.ops.back().outputs) {
    const StorageId storage(graph.values[id].storage);
    const ValueTicket ticket = engine_.values().ticket(engine_.current(storage));
    if (ticket.value.valid()) {
      tickets_[id] = ticket;
      by_value_[ticket.value.index()] = id;
      if (ops_.empty() || ops_.back().first != ticket.made_by) {
        ops_.emplace_back(ticket.made_by, position() - 1);
      }
    }
  }
}

bool ScheduleRunner::bind(Following& following, std::uint32_t planned, std::uint32_t seen) const {
  if (builder_.graph().values[seen].size != following.plan->graph.values[planned].size) {
    return false;
  }
  if (planned >= following.seen.size()) {
    following.seen.resize(planned + std::size_t{1}, GraphValue::kNone);
  }
  std::uint32_t& is = following.seen[planned];
  const auto [was, is_new] = following.planned.try_emplace(seen, planned);
  if (is_new && is == GraphValue::kNone) {
    is = seen;
  }
  return is == seen && was->second == planned;
}

bool ScheduleRunner::advance(Following& following) const {
  const TraceGraph& graph = builder_.graph();
  const TraceGraph& plan = following.plan->graph;
  if (following.ended()) {
    return false;
  }
  const GraphOp& seen = graph.ops[following.start + following.next];
  const GraphOp& planned = plan.ops[following.next];
  if (seen.name != planned.name || seen.inputs.size() != planned.inputs.size() ||
      seen.outputs.size() != planned.outputs.size()) {
    return false;
  }
  for (std::size_t i = 0; i < seen.inputs.size(); ++i) {
    if (!bind(following, planned.inputs[i], seen.inputs[i])) {
      return false;
    }
  }
  for (std::size_t i = 0; i < seen.outputs.size(); ++i) {
    if (!bind(following, planned.outputs[i], seen.outputs[i])) {
      return false;
    }
  }
  ++following.next;
  return true;
}

// Follows the plan from `start` as far as the step has run; without a plan if an op differs.
ScheduleRunner::Following ScheduleRunner::follow(const StepPlan& plan, std::uint32_t start) const {
  Following following{.plan = &plan, .start = start, .next = 0, .seen = {}, .planned = {}};
  while (following.start + following.next < position()) {
    if (!advance(following)) {
      return {};
    }
  }
  return following;
}

void ScheduleRunner::find_plan() {
  if (following_.plan != nullptr && advance(following_)) {
    return;
  }
  const bool had_one = following_.plan != nullptr;
  const std::uint32_t start = following_.start;
  let_go();
  following_ = {};
  // Another plan that agrees with everything seen, or a plan that begins with this op.
  for (const bool again : {true, false}) {
    for (std::size_t i = 0; i < plans_.size() && following_.plan == nullptr && (had_one || !again);
         ++i) {
      following_ = follow(*plans_[i], again ? start : position() - 1);
    }
  }
}

void ScheduleRunner::after_op() {
  if (following_.plan != nullptr) {
    ++driven_;
    const StepPlan& plan = *following_.plan;
    const std::uint32_t op = following_.next - 1;
    for (const std::uint32_t value : plan.graph.ops[op].outputs) {
      keep_until(value, op + 1);
    }
    for (const std::uint32_t value : plan.drops[op]) {
      drop(value);
    }
    for (const std::uint64_t sequence : replayed_) {
      const auto found = std::lower_bound(ops_.begin(), ops_.end(), std::pair{sequence, 0U});
      if (found == ops_.end() || found->first != sequence || found->second < following_.start) {
        continue;  // not an op of the plan
      }
      for (const std::uint32_t value : plan.graph.ops[found->second - following_.start].outputs) {
        if (!plan.schedule.kept[value].empty() && !kept_at(value, op + 1)) {
          drop(value);
        }
      }
    }
  }
  replayed_.clear();
}

// The engine drops a value that is not needed, so a value is marked as kept until its interval
// ends. False: nothing to mark, because the program itself holds the value until the interval ends.
bool ScheduleRunner::keep_until(std::uint32_t planned, std::uint32_t op) {
  const Interval* const interval = interval_at(following_.plan->schedule.kept[planned], op);
  const bool ends = interval != nullptr && interval->to != Interval::kOpen;
  if (ends) {
    engine_.schedule().keep(ticket(planned), true);
    kept_.push_back(ticket(planned));
  }
  return ends;
}

void ScheduleRunner::drop(std::uint32_t planned) {
  engine_.schedule().drop(ticket(planned));
  engine_.schedule().keep(ticket(planned), false);
}

bool ScheduleRunner::keeps(const ValueTicket& ticket) const {
  if (following_.plan == nullptr || !ticket.value.valid()) {
    return true;
  }
  const auto found = by_value_.find(ticket.value.index());
  if (found == by_value_.end() || tickets_[found->second].made_by != ticket.made_by) {
    return true;  // from an earlier step
  }
  const auto planned = following_.planned.find(found->second);
  return planned == following_.planned.end() ||
         following_.plan->schedule.kept[planned->second].empty() ||
         kept_at(planned->second, following_.next) || kept_at(planned->second, following_.next + 1);
}

void ScheduleRunner::on_replay(std::string_view /*name*/, OpId /*id*/, const Op& op) {
  if (following_.plan != nullptr) {
    replayed_.push_back(op.sequence);
  }
}

void ScheduleRunner::let_go() {
  for (const ValueTicket& ticket : std::exchange(kept_, {})) {
    engine_.schedule().keep(ticket, false);
  }
}

void ScheduleRunner::on_step(std::string_view /*name*/) { end_step(); }

// Restoring a segment may cost as much as all ops of the step. If less than that is allowed, a
// schedule would cause errors that the policy alone would not.
bool ScheduleRunner::may_replay_a_step() const {
  const double ratio = engine_.options().max_replay_ratio;
  return ratio <= 0 || ratio >= 2;
}

void ScheduleRunner::end_step() {
  let_go();
  TraceGraph step = builder_.take();
  if (following_.ended()) {
    const auto used = std::find_if(plans_.begin(), plans_.end(), [this](const auto& plan) {
      return plan.get() == following_.plan;
    });
    std::rotate(plans_.begin(), used, used + 1);
  } else if (!step.ops.empty() && may_replay_a_step()) {
    plans_.insert(plans_.begin(),
                  std::make_unique<StepPlan>(kind_, std::move(step), names_, budget_));
    if (plans_.size() > kMostPlans) {
      plans_.pop_back();
    }
  }
  forget_step();
  too_long_ = false;
}

void ScheduleRunner::forget_step() {
  following_ = {};
  tickets_.clear();
  by_value_.clear();
  ops_.clear();
  replayed_.clear();
}

ScheduleRunner::Plans ScheduleRunner::take_plans() {
  following_ = {};
  return {.names = std::exchange(names_, {}), .plans = std::exchange(plans_, {})};
}

void ScheduleRunner::set_plans(Plans plans) {
  names_.clear();
  name_indexes_.clear();
  for (const std::string& name : plans.names) {
    (void)name_index(name);
  }
  plans_ = std::move(plans.plans);
}

}  // namespace recoup::detail
