// Whether everything that a trace refers to is there.
#include "csrc/base/strings.h"
#include "recoup/trace.h"

namespace recoup {
namespace {

using detail::str_cat;

class Validator {
 public:
  explicit Validator(const Trace& trace) : trace_(trace) {}

  void run() {
    for (std::size_t i = 0; i < trace_.kernels.size(); ++i) {
      check_kernel(i);
    }
    for (at_ = 0; at_ < trace_.events.size(); ++at_) {
      check_event(trace_.events[at_]);
    }
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw BadTrace(str_cat("event ", at_, place_, ": ", what));
  }
  void check_size(Bytes size) const {
    if (size < Bytes(0)) {
      fail(str_cat("a size of ", size.count(), " bytes"));
    }
  }
  void check_live(std::uint32_t storage) const {
    if (storage >= live_.size()) {
      fail(str_cat("storage ", storage, " has not been made yet"));
    }
    if (!live_[storage]) {
      fail(str_cat("storage ", storage, " is gone already"));
    }
  }
  void check_block(std::uint32_t block) const {
    if (block >= held_.size() || !held_[block]) {
      fail(str_cat("block ", block, " is not held"));
    }
  }

  void check_kernel(std::size_t index) const {
    std::vector<bool> held;
    for (const KernelStep& step : trace_.kernels[index]) {
      if (step.kind == KernelStep::Kind::kAllocate) {
        if (step.size < Bytes(0)) {
          throw BadTrace(str_cat("kernel ", index, ": a size of ", step.size.count(), " bytes"));
        }
        held.push_back(true);
      } else if (step.index >= held.size() || !held[step.index]) {
        throw BadTrace(str_cat("kernel ", index, ": frees allocation ", step.index,
                               ", which it does not hold"));
      } else {
        held[step.index] = false;
      }
    }
  }

  void check_event(const TraceEvent& event) {
    place_.clear();
    switch (event.kind) {
      case TraceEvent::Kind::kExternal:
        check_size(event.size);
        live_.push_back(true);
        break;
      case TraceEvent::Kind::kAllocate:
        check_size(event.size);
        held_.push_back(true);
        break;
      case TraceEvent::Kind::kFree:
        check_block(event.index);
        held_[event.index] = false;
        break;
      case TraceEvent::Kind::kAdopt:
        check_block(event.index);
        check_size(event.size);
        held_[event.index] = false;
        live_.push_back(true);
        break;
      case TraceEvent::Kind::kDie:
      case TraceEvent::Kind::kForsake:
        check_live(event.index);
        live_[event.index] = false;
        break;
      case TraceEvent::Kind::kEscape:
      case TraceEvent::Kind::kPin:
      case TraceEvent::Kind::kUnpin:
      case TraceEvent::Kind::kEvict:
        check_live(event.index);
        break;
      case TraceEvent::Kind::kStep:
        if (event.index >= trace_.names.size()) {
          fail(str_cat("there is no name ", event.index));
        }
        break;
      case TraceEvent::Kind::kSettle:
        break;
      case TraceEvent::Kind::kOp:
        check_op(event.index);
        break;
    }
  }

  void check_op(std::uint32_t index) {
    if (index >= trace_.ops.size()) {
      fail(str_cat("there is no op ", index));
    }
    const TraceOp& op = trace_.ops[index];
    if (op.name >= trace_.names.size() || op.kernel >= trace_.kernels.size()) {
      fail(str_cat("op ", index, " has no name or no kernel"));
    }
    place_ = str_cat(" (op ", index, ", ", trace_.names[op.name], ")");
    for (const TraceOperand& operand : trace_.operands_of(op)) {
      check_live(operand.storage);
    }
    check_size(op.workspace);
    check_size(op.record_bytes);
    check_size(Bytes(op.cost.count()));
    std::vector<Bytes> made;
    std::vector<bool> held;
    for (const KernelStep& step : trace_.kernels[op.kernel]) {
      if (step.kind == KernelStep::Kind::kAllocate) {
        held.push_back(true);
        made.push_back(step.size);
      } else {
        held[step.index] = false;
      }
    }
    for (const TraceFresh& fresh : trace_.fresh_of(op)) {
      if (fresh.allocation >= held.size() || !held[fresh.allocation]) {
        fail(str_cat("it returns allocation ", fresh.allocation,
                     ", which its kernel does not hold"));
      }
      held[fresh.allocation] = false;
      check_size(fresh.nbytes);
      if (fresh.nbytes > made[fresh.allocation]) {
        fail(str_cat("it returns ", fresh.nbytes.count(), " bytes of an allocation of ",
                     made[fresh.allocation].count()));
      }
      live_.push_back(true);
    }
  }

  const Trace& trace_;
  std::size_t at_ = 0;
  std::string place_;
  std::vector<bool> live_;  // storages
  std::vector<bool> held_;  // blocks
};

}  // namespace

void validate(const Trace& trace) { Validator(trace).run(); }

}  // namespace recoup
