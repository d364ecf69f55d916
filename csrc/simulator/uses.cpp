#include "csrc/simulator/uses.h"

#include <algorithm>

#include "recoup/policy.h"

namespace recoup::detail {

using EventKind = TraceEvent::Kind;

TraceUses::TraceUses(const Trace& trace) : starts_{Nanoseconds(0)} {
  for (const TraceEvent& event : trace.events) {
    switch (event.kind) {
      case EventKind::kExternal:
      case EventKind::kAdopt:
        storages_.emplace_back();
        break;
      case EventKind::kOp: {
        const TraceOp& op = trace.ops[event.index];
        for (const TraceOperand& operand : trace.operands_of(op)) {
          if (operand.reads || operand.written) {
            add_use(operand.storage, operand.overwritten && !operand.reads);
          }
        }
        storages_.resize(storages_.size() + op.fresh_count);
        starts_.push_back(starts_.back() + op.cost);
        break;
      }
      case EventKind::kEscape:
      case EventKind::kPin:
      case EventKind::kPart:
        add_use(event.index, false);
        break;
      case EventKind::kParts:
        for (const TracePartOperand& operand : trace.operands_of(trace.list_ops[event.index])) {
          if (operand.written) {
            add_use(operand.storage, false);
          }
        }
        break;
      case EventKind::kDie:
      case EventKind::kDisown:
        storages_[event.index].exits = scope_exits_.size();
        break;
      case EventKind::kScopeExit:
        scope_exits_.push_back(now());
        break;
      default:
        break;
    }
  }
}

void TraceUses::add_use(std::uint32_t storage, bool overwrites) {
  storages_[storage].uses.push_back({.op = now(), .overwrites = overwrites});
}

void TraceUses::add_storage(StorageId id) {
  if (id.index() >= numbers_.size()) {
    numbers_.resize(id.index() + std::size_t{1});
  }
  numbers_[id.index()] = next_number_++;
}

// A storage of the op that is about to end is not registered yet: it counts as used now.
Nanoseconds TraceUses::until_use(StorageId id) const {
  if (id.index() >= numbers_.size()) {
    return Nanoseconds(0);
  }
  const Storage& storage = storages_[numbers_[id.index()]];
  const auto next = std::partition_point(storage.uses.begin(), storage.uses.end(),
                                         [this](const Use& use) { return use.op < op_; });
  const auto exit = std::lower_bound(scope_exits_.begin(), scope_exits_.end(), op_);
  // The exit of a scope uses all live storages.
  const bool at_exit = exit != scope_exits_.end() &&
                       static_cast<std::size_t>(exit - scope_exits_.begin()) < storage.exits;
  const bool used = next != storage.uses.end();
  if (at_exit && (!used || *exit <= next->op)) {
    return starts_[*exit] - starts_[op_];
  }
  return !used || next->overwrites ? Candidate::kNever : starts_[next->op] - starts_[op_];
}

}  // namespace recoup::detail
