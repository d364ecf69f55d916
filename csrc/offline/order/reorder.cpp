// reorder: makes the trace of a program that runs the ops in another order. Other events go to
//
//   the head of a step     storages from outside, blocks; ends of storages that the step does not
//   use
//   after an op            events of a storage since that op wrote it, or used it last
//   the tail of a step     events at the end of the step
#include <limits>
#include <utility>

#include "csrc/trace/event_traits.h"
#include "recoup/offline/order.h"

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
        events_after_(trace.ops.size()),
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
        emit(events_after_[op]);
      }
      emit(step.tail);
      ops_ = ops_.subspan(step.ops);
    }
    return std::move(result_);
  }

 private:
  struct Placed {
    TraceEvent event;
    std::uint32_t born = kNoOp;  // id in the old trace of the storage that the event makes
  };
  struct Step {
    std::vector<Placed> head;
    std::vector<Placed> tail;
    std::size_t ops = 0;
  };
  // The accesses to a storage in the last step that used it.
  struct Use {
    std::size_t step = 0;
    std::uint32_t writer = kNoOp;  // the last one so far
    std::uint32_t last = kNoOp;    // the last user in the new order
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
      // also memory that a kernel still holds, whose op may be elsewhere
      case EventKind::kAllocate:
        step.head.push_back(
            {.event = {.kind = EventKind::kAllocate, .index = 0, .size = event.size}});
        break;
      case EventKind::kSegment:
        step.head.push_back({.event = event});
        break;
      case EventKind::kRule:
        place_after(event.index, &Use::writer).push_back({.event = event});
        break;
      case EventKind::kEscape:
      case EventKind::kLeave:
      case EventKind::kPin:
        place_after(event.index, &Use::writer).push_back({.event = event});
        uses_[event.index].is_kept = true;
        break;
      case EventKind::kEvict:
      case EventKind::kPart:
      case EventKind::kDie:
      case EventKind::kDisown:
        (uses_[event.index].is_kept ? step.tail : place_after(event.index, &Use::last))
            .push_back({.event = event});
        break;
      case EventKind::kFree:
      case EventKind::kUnpin:
      case EventKind::kEscapeEnd:
      case EventKind::kScopeExit:
        step.tail.push_back({.event = event});
        break;
      case EventKind::kStep:
        step.tail.push_back({.event = event});
        steps_.emplace_back();
        break;
      case EventKind::kTime:  // valid for the old order only
        break;
      case EventKind::kParts:
        detach(trace_.list_ops[event.index]);
        break;
      case EventKind::kPartsEnd:
      case EventKind::kPlan:  // valid for the old order only
        break;
    }
  }

  // The parts of a list op may be apart in the new order, so each storage that it writes gets an
  // event of its own.
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

  std::vector<Placed>& place_after(std::uint32_t storage, std::uint32_t Use::* op) {
    const Use& use = uses_[storage];
    return use.step == steps_.size() && use.*op != kNoOp ? events_after_[use.*op]
                                                         : steps_.back().head;
  }

  void emit(const std::vector<Placed>& events) {
    for (auto [event, born] : events) {
      if (born != kNoOp) {
        new_storage_[born] = storages_++;
      } else if (detail::is_of_storage(event.kind)) {
        event.index = new_storage_[event.index];
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
  std::span<const std::uint32_t> ops_;             // not yet emitted
  std::vector<std::uint32_t> place_;               // by op: its position in the given order
  std::vector<std::vector<Placed>> events_after_;  // by op: the events after it
  std::vector<std::uint32_t> fresh_;               // by op: the first storage that it makes
  std::vector<Step> steps_;
  std::vector<Use> uses_;  // by id in the old trace
  std::vector<std::uint32_t> new_storage_;
  std::uint32_t storages_ = 0;
  Trace result_;
};

}  // namespace

Trace reorder(const Trace& trace, std::span<const std::uint32_t> ops) {
  return Reorder(trace, ops).run();
}

}  // namespace recoup
