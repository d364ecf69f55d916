// reorder: the trace of a program that runs the ops in another order.
//
//   head of a step       what comes from outside, blocks; the ends of what it does not use
//   behind an op         what happens to a storage from when it is written, or when it was used
//   last tail                 what ends with the step
#include <limits>
#include <utility>

#include "recoup/order.h"

namespace recoup {
namespace {

using EventKind = TraceEvent::Kind;

constexpr std::uint32_t kNoOp = std::numeric_limits<std::uint32_t>::max();

class Reorder {
 public:
  Reorder(const Trace& trace, std::span<const std::uint32_t> ops)
      : trace_(trace),
        ops_(ops),
        place_(trace.ops.size(), kNoOp),
        behind_(trace.ops.size()),
        fresh_(trace.ops.size()),
        steps_(1) {
    for (std::uint32_t at = 0; at < ops.size(); ++at) {
      place_[ops[at]] = at;
    }
  }

  Trace run() {
    for (const TraceEvent& event : trace_.events) {
      find_place(event);
    }
    result_.device = trace_.device;
    result_.names = trace_.names;
    result_.kernels = trace_.kernels;
    new_storage_.resize(uses_.size());
    for (const Step& step : steps_) {
      emit(step.head);
      for (const std::uint32_t op : ops_.first(step.ops)) {
        emit_op(op);
        emit(behind_[op]);
      }
      emit(step.tail);
      ops_ = ops_.subspan(step.ops);
    }
    return std::move(result_);
  }

 private:
  struct Placed {
    TraceEvent event;
    std::uint32_t born = kNoOp;  // the storage that it makes, as the old trace numbers it
  };
  struct Step {
    std::vector<Placed> head;
    std::vector<Placed> tail;
    std::size_t ops = 0;
  };
  // Of a storage, in the step that used it last.
  struct Use {
    std::size_t step = 0;
    std::uint32_t writer = kNoOp;  // so far
    std::uint32_t last = kNoOp;    // in the new order
    bool is_kept = false;          // pinned or escaped: lives to the end of its step
  };

  void use(std::uint32_t storage, std::uint32_t op, bool writes) {
    Use& use = uses_[storage];
    if (use.step != steps_.size()) {
      use = {.step = steps_.size(), .is_kept = use.is_kept};
    }
    use.writer = writes ? op : use.writer;
    use.last = use.last == kNoOp || place_[op] > place_[use.last] ? op : use.last;
  }

  void find_place(const TraceEvent& event) {
    Step& step = steps_.back();
    switch (event.kind) {
      case EventKind::kOp:
        add_uses(event.index);
        break;
      case EventKind::kExternal:
      case EventKind::kAdopt:
        step.head.push_back({.event = event, .born = static_cast<std::uint32_t>(uses_.size())});
        uses_.emplace_back();
        break;
      case EventKind::kAllocate:  // also what a kernel goes on holding, whose op may lie elsewhere
        step.head.push_back(
            {.event = {.kind = EventKind::kAllocate, .index = 0, .size = event.size}});
        break;
      case EventKind::kEscape:
      case EventKind::kLeave:
      case EventKind::kPin:
        behind(event.index, &Use::writer).push_back({.event = event});
        uses_[event.index].is_kept = true;
        break;
      case EventKind::kUnpin:
        step.tail.push_back({.event = event});
        break;
      case EventKind::kEvict:
      case EventKind::kPart:
      case EventKind::kDie:
      case EventKind::kDisown:
        (uses_[event.index].is_kept ? step.tail : behind(event.index, &Use::last))
            .push_back({.event = event});
        break;
      case EventKind::kFree:
      case EventKind::kScopeExit:
        step.tail.push_back({.event = event});
        break;
      case EventKind::kStep:
        step.tail.push_back({.event = event});
        steps_.emplace_back();
        break;
      case EventKind::kTime:  // of the order that was
        break;
      case EventKind::kParts:
        detach(trace_.list_ops[event.index]);
        break;
      case EventKind::kPartsEnd:
      case EventKind::kPlan:  // for the order that was
        break;
    }
  }

  // Its parts may lie apart: each storage is settled by itself.
  void detach(const TraceListOp& op) {
    for (const TracePartOperand& operand : trace_.operands_of(op)) {
      if (operand.written) {
        find_place({.kind = EventKind::kPart, .index = operand.storage, .size = Bytes(0)});
      }
    }
  }

  void add_uses(std::uint32_t index) {
    const TraceOp& op = trace_.ops[index];
    if (place_[index] == kNoOp) {
      return;
    }
    ++steps_.back().ops;
    for (const TraceOperand& operand : trace_.operands_of(op)) {
      use(operand.storage, index, operand.written);
    }
    fresh_[index] = static_cast<std::uint32_t>(uses_.size());
    for (std::uint32_t i = 0; i < op.fresh_count; ++i) {
      uses_.emplace_back();
      use(fresh_[index] + i, index, true);
    }
  }

  std::vector<Placed>& behind(std::uint32_t storage, std::uint32_t Use::* op) {
    const Use& use = uses_[storage];
    return use.step == steps_.size() && use.*op != kNoOp ? behind_[use.*op] : steps_.back().head;
  }

  void emit(const std::vector<Placed>& events) {
    for (auto [event, born] : events) {
      switch (event.kind) {
        case EventKind::kExternal:
        case EventKind::kAdopt:
          new_storage_[born] = storages_++;
          break;
        case EventKind::kEscape:
        case EventKind::kLeave:
        case EventKind::kPin:
        case EventKind::kUnpin:
        case EventKind::kEvict:
        case EventKind::kPart:
        case EventKind::kDie:
        case EventKind::kDisown:
          event.index = new_storage_[event.index];
          break;
        case EventKind::kAllocate:  // blocks and names keep their numbers
        case EventKind::kFree:
        case EventKind::kStep:
        case EventKind::kTime:
        case EventKind::kScopeExit:
        case EventKind::kOp:
        case EventKind::kPlan:
        case EventKind::kParts:
        case EventKind::kPartsEnd:
          break;
      }
      result_.events.push_back(event);
    }
  }

  void emit_op(std::uint32_t index) {
    TraceOp op = trace_.ops[index];
    const auto operands = trace_.operands_of(op);
    const auto fresh = trace_.fresh_of(op);
    op.first_operand = static_cast<std::uint32_t>(result_.operands.size());
    op.first_fresh = static_cast<std::uint32_t>(result_.fresh.size());
    for (TraceOperand operand : operands) {
      operand.storage = new_storage_[operand.storage];
      result_.operands.push_back(operand);
    }
    result_.fresh.insert(result_.fresh.end(), fresh.begin(), fresh.end());
    for (std::uint32_t i = 0; i < op.fresh_count; ++i) {
      new_storage_[fresh_[index] + i] = storages_++;
    }
    result_.events.push_back({.kind = EventKind::kOp,
                              .index = static_cast<std::uint32_t>(result_.ops.size()),
                              .size = Bytes(0)});
    result_.ops.push_back(op);
  }

  const Trace& trace_;
  std::span<const std::uint32_t> ops_;       // that are still to be emitted
  std::vector<std::uint32_t> place_;         // in `ops_` as it was given, by op
  std::vector<std::vector<Placed>> behind_;  // by op
  std::vector<std::uint32_t> fresh_;         // the first storage that each op makes
  std::vector<Step> steps_;
  std::vector<Use> uses_;  // by storage, as the old trace numbers it
  std::vector<std::uint32_t> new_storage_;
  std::uint32_t storages_ = 0;
  Trace result_;
};

}  // namespace

Trace reorder(const Trace& trace, std::span<const std::uint32_t> ops) {
  return Reorder(trace, ops).run();
}

}  // namespace recoup
