#include "csrc/simulate/uses.h"

#include <algorithm>

#include "recoup/policy.h"

namespace recoup::detail {

using Kind = TraceEvent::Kind;

TraceUses::TraceUses(const Trace& trace) : starts_{Nanoseconds(0)} {
  std::vector<bool> live;
  const auto add_storages = [&](std::size_t count) {
    live.resize(live.size() + count, true);
    uses_.resize(live.size());
  };
  for (const TraceEvent& event : trace.events) {
    switch (event.kind) {
      case Kind::kExternal:
      case Kind::kAdopt:
        add_storages(1);
        break;
      case Kind::kOp: {
        const TraceOp& op = trace.ops[event.index];
        for (const TraceOperand& operand : trace.operands_of(op)) {
          if (operand.reads || operand.written) {
            add_use(operand.storage, operand.overwritten && !operand.reads);
          }
        }
        add_storages(op.fresh_count);
        starts_.push_back(starts_.back() + op.cost);
        break;
      }
      case Kind::kEscape:
      case Kind::kPin:
        add_use(event.index, false);
        break;
      case Kind::kDie:
      case Kind::kForsake:
        live[event.index] = false;
        break;
      case Kind::kSettle:
        for (std::uint32_t storage = 0; storage < live.size(); ++storage) {
          if (live[storage]) {
            add_use(storage, false);
          }
        }
        break;
      case Kind::kAllocate:
      case Kind::kFree:
      case Kind::kUnpin:
      case Kind::kEvict:
      case Kind::kStep:
        break;
    }
  }
}

void TraceUses::add_use(std::uint32_t storage, bool overwrites) {
  uses_[storage].push_back({.op = starts_.size() - 1, .overwrites = overwrites});
}

void TraceUses::add_storage(StorageId id) {
  if (id.index() >= numbers_.size()) {
    numbers_.resize(id.index() + std::size_t{1});
  }
  numbers_[id.index()] = next_number_++;
}

Nanoseconds TraceUses::until_use(StorageId storage) const {
  const std::vector<Use>& uses = uses_[numbers_[storage.index()]];
  const auto next = std::partition_point(uses.begin(), uses.end(),
                                         [this](const Use& use) { return use.op < op_; });
  return next == uses.end() || next->overwrites ? Candidate::kNever
                                                : starts_[next->op] - starts_[op_];
}

}  // namespace recoup::detail
