#include "csrc/trace/step.h"

#include <algorithm>
#include <stdexcept>
#include <utility>
#include <vector>

#include "csrc/base/strings.h"
#include "csrc/trace/event_traits.h"
#include "csrc/trace/sink.h"

namespace recoup::detail {
namespace {

using EventKind = TraceEvent::Kind;

class StepCutter {
 public:
  StepCutter(const Trace& trace, std::size_t index) : trace_(trace), index_(index) {}

  Trace cut() {
    built_.set_device(trace_.device);
    for (const std::string& name : trace_.names) {
      built_.add_name(name);
    }
    for (const std::vector<KernelStep>& kernel : trace_.kernels) {
      built_.add_kernel(kernel);
    }
    std::size_t marks = 0;
    for (const TraceEvent& event : trace_.events) {
      if (marks == index_ && !inside_) {
        begin();
      }
      apply(event);
      if (event.kind == EventKind::kStep && marks++ == index_) {
        return built_.take();
      }
    }
    throw std::invalid_argument(
        str_cat("step ", index_, " does not exist: the trace has ", marks, " marked steps"));
  }

 private:
  struct Storage {
    Bytes size{0};
    std::uint32_t outside = 0;  // index of its kExternal
    bool live = true;
    bool escaped = false;  // it escaped in this step
    std::size_t pins = 0;
    std::uint32_t number = 0;  // number in the step's trace
  };
  struct Block {
    Bytes size{0};
    bool held = true;
    std::uint32_t number = 0;
  };

  void begin() {
    inside_ = true;
    for (std::uint32_t i = 0; i < segments_.size(); ++i) {
      add({.kind = EventKind::kSegment, .index = i, .size = segments_[i]});
    }
    for (Storage& storage : storages_) {
      if (storage.live) {
        storage.number = storage_count_++;
        add({.kind = EventKind::kExternal, .index = storage.outside, .size = storage.size});
        for (std::size_t pin = 0; pin < storage.pins; ++pin) {
          add({.kind = EventKind::kPin, .index = storage.number, .size = Bytes(0)});
        }
      }
    }
    for (Block& block : blocks_) {
      if (block.held) {
        block.number = block_count_++;
        add({.kind = EventKind::kAllocate, .index = 0, .size = block.size});
      }
    }
  }

  void add(const TraceEvent& event) {
    if (inside_) {
      built_.add_event(event);
    }
  }
  void add_storage(Bytes size, std::uint32_t outside = 0) {
    storages_.push_back(
        {.size = size, .outside = outside, .number = inside_ ? storage_count_++ : 0});
  }

  void apply(const TraceEvent& event) {
    TraceEvent added = event;
    if (is_of_storage(event.kind)) {
      const bool ends_escape =
          event.kind == EventKind::kLeave || event.kind == EventKind::kEscapeEnd;
      if (ends_escape && !storages_[event.index].escaped) {
        return;  // it is external from the beginning
      }
      follow(event);
      added.index = storages_[event.index].number;
    }
    switch (event.kind) {
      case EventKind::kExternal:
        add_storage(event.size, event.index);
        break;
      case EventKind::kSegment:
        segments_.resize(std::max<std::size_t>(segments_.size(), event.index + std::size_t{1}));
        segments_[event.index] = event.size;
        break;
      case EventKind::kAllocate:
        blocks_.push_back({.size = event.size, .number = inside_ ? block_count_++ : 0});
        break;
      case EventKind::kAdopt:
        add_storage(event.size);
        [[fallthrough]];
      case EventKind::kFree:
        blocks_[event.index].held = false;
        added.index = blocks_[event.index].number;
        break;
      case EventKind::kOp:
        add_op(trace_.ops[event.index]);
        return;
      case EventKind::kPlan:
        return;  // a plan concerns the whole run
      case EventKind::kParts:
        add_list_op(trace_.list_ops[event.index]);
        return;
      case EventKind::kPartsEnd:
        if (!std::exchange(in_parts_, false)) {
          return;  // the op on lists began before the step
        }
        break;
      default:
        break;
    }
    add(added);
  }

  void follow(const TraceEvent& event) {
    Storage& storage = storages_[event.index];
    if (event.kind == EventKind::kPin) {
      ++storage.pins;
    } else if (event.kind == EventKind::kUnpin && storage.pins > 0) {
      --storage.pins;
    } else if (event.kind == EventKind::kDie || event.kind == EventKind::kDisown) {
      storage.live = false;
    } else if (event.kind == EventKind::kEscape) {
      storage.escaped = inside_;
    }
  }

  void add_op(const TraceOp& op) {
    if (inside_) {
      std::vector<TraceOperand> operands;
      for (TraceOperand operand : trace_.operands_of(op)) {
        operand.storage = storages_[operand.storage].number;
        operands.push_back(operand);
      }
      built_.add_op(op, operands, trace_.fresh_of(op));
    }
    for (const TraceFresh& fresh : trace_.fresh_of(op)) {
      add_storage(fresh.nbytes);
    }
  }

  void add_list_op(const TraceListOp& op) {
    in_parts_ = inside_;
    if (inside_) {
      const auto operands = trace_.operands_of(op);
      std::vector<TracePartOperand> added(operands.begin(), operands.end());
      for (TracePartOperand& operand : added) {
        operand.storage = storages_[operand.storage].number;
      }
      built_.add_list_op(op, trace_.parts_of(op), added);
    }
  }

  const Trace& trace_;
  std::size_t index_;
  TraceBuilder built_;
  bool inside_ = false;
  bool in_parts_ = false;          // an op on lists of the step runs
  std::vector<Storage> storages_;  // by number in the whole trace
  std::vector<Bytes> segments_;    // returnable bytes, by number
  std::vector<Block> blocks_;
  std::uint32_t storage_count_ = 0;  // in the step's trace
  std::uint32_t block_count_ = 0;
};

}  // namespace

Trace step_of(const Trace& trace, std::size_t index) { return StepCutter(trace, index).cut(); }

Trace first_events(const Trace& trace, std::size_t count) {
  Trace first = trace;
  first.events.resize(std::min(count, first.events.size()));
  std::erase_if(first.events, [](const TraceEvent& each) { return each.kind == EventKind::kPlan; });
  TraceBuilder built;
  tell(first, built);  // leaves out what no event refers to
  return built.take();
}

}  // namespace recoup::detail
