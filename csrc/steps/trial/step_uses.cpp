#include "csrc/steps/trial/step_uses.h"

#include <algorithm>

namespace recoup::detail {

StepUses::StepUses(const RecordedStep& step)
    : before_(static_cast<std::uint32_t>(step.names.size())), starts_{Nanoseconds(0)} {
  using EventKind = TraceEvent::Kind;
  const Trace& trace = step.trace;
  for (const TraceEvent& event : trace.events) {
    if (event.kind == EventKind::kExternal || event.kind == EventKind::kAdopt) {
      uses_.emplace_back();
      ends_.push_back(false);
    }
    if (event.kind == EventKind::kDie || event.kind == EventKind::kDisown) {
      ends_[event.index] = true;
    }
    if (event.kind != EventKind::kOp || trace.ops[event.index].failed) {
      continue;
    }
    const TraceOp& op = trace.ops[event.index];
    const auto number = static_cast<std::uint32_t>(starts_.size() - 1);
    for (const TraceOperand& operand : trace.operands_of(op)) {
      if (operand.reads || operand.written) {
        if (uses_[operand.storage].empty() && operand.overwritten && !operand.reads) {
          ends_[operand.storage] = true;
        }
        used_.push_back(operand.storage);
        uses_[operand.storage].push_back(number);
      }
    }
    first_.push_back(static_cast<std::uint32_t>(used_.size()));
    uses_.resize(uses_.size() + op.fresh_count);
    ends_.resize(uses_.size());
    starts_.push_back(starts_.back() + op.cost);
  }
}

std::optional<std::uint32_t> StepUses::next_use(std::uint32_t storage, std::uint32_t op) const {
  if (storage >= uses_.size()) {
    return std::nullopt;
  }
  const std::vector<std::uint32_t>& uses = uses_[storage];
  const auto next = std::lower_bound(uses.begin(), uses.end(), op);
  if (next != uses.end()) {
    return *next - op;
  }
  return is_needed_again(storage) ? std::optional(ops() - op + uses.front()) : std::nullopt;
}

Nanoseconds StepUses::cost_of(std::uint32_t op, std::uint32_t ops_later) const {
  const std::uint32_t end = op + ops_later;
  const Nanoseconds until =
      end <= ops() ? starts_[end] : starts_.back() + starts_[std::min(end - ops(), ops())];
  return until - starts_[std::min(op, ops())];
}

void StepForecast::add_storage(StorageId id) {
  ids_.push_back(engine_.values().ticket(id));
  numbers_[id] = static_cast<std::uint32_t>(ids_.size());
}

std::optional<std::uint32_t> StepForecast::number_of(StorageId id) const {
  const std::uint32_t number = numbers_.get(id);
  return number == 0 || !engine_.values().holds(ids_[number - 1]) ? std::nullopt
                                                                  : std::optional(number - 1);
}

std::optional<Nanoseconds> StepForecast::until_next_run(StorageId storage) const {
  const std::optional<std::uint32_t> number = number_of(storage);
  const std::optional<std::uint32_t> use =
      number && uses_.is_needed_again(*number) ? uses_.next_use(*number, op_) : std::nullopt;
  // A use in this run is not of this content.
  return use && *use + op_ >= uses_.ops() ? std::optional(uses_.cost_of(op_, *use)) : std::nullopt;
}

bool StepForecast::uses_ahead(std::uint32_t n, std::vector<StorageId>& storages) const {
  const std::uint32_t at = op_ + n;
  const bool next_run = at >= uses_.ops();
  const std::uint32_t op = next_run ? at - uses_.ops() : at;
  if (op >= uses_.ops()) {
    return false;
  }
  for (const std::uint32_t number : uses_.used_by(op)) {
    const StorageId storage = find(number);
    if (storage.valid() && (!next_run || uses_.is_before(number))) {
      storages.push_back(storage);
    }
  }
  return true;
}

std::optional<std::uint32_t> StepForecast::next_use(StorageId storage) const {
  const std::optional<std::uint32_t> number = number_of(storage);
  return number ? uses_.next_use(*number, op_) : std::nullopt;
}

}  // namespace recoup::detail
