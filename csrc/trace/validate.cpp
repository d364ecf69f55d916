// Validates a trace in memory.
#include "csrc/base/strings.h"
#include "csrc/trace/sink.h"
#include "csrc/trace/validator.h"

namespace recoup {
namespace {

using detail::str_cat;

// Checks that the indices in a trace are in range, so that it can be processed record by record.
// Ops and their parts must be stored in the order in which they run.
class Parts {
 public:
  explicit Parts(const Trace& trace) : trace_(trace) {}

  void check() {
    for (std::size_t at = 0; at < trace_.events.size(); ++at) {
      const TraceEvent& event = trace_.events[at];
      if (event.kind == TraceEvent::Kind::kOp) {
        check_op(at, event.index);
      } else if (event.kind == TraceEvent::Kind::kPlan) {
        check_plan(at, event.index);
      } else if (event.kind == TraceEvent::Kind::kParts) {
        check_list_op(at, event.index);
      }
    }
    if (list_ops_ != trace_.list_ops.size() || parts_ != trace_.parts.size() ||
        part_operands_ != trace_.part_operands.size()) {
      throw BadTrace(str_cat("of ", trace_.list_ops.size(), " ops on lists, only the first ",
                             list_ops_, " begin"));
    }
    if (plans_ != trace_.plans.size() || evictions_ != trace_.evictions.size() ||
        blocks_ != trace_.blocks.size() || starts_ != trace_.starts.size()) {
      throw BadTrace(
          str_cat("of ", trace_.plans.size(), " plans, only the first ", plans_, " take effect"));
    }
    if (ops_ != trace_.ops.size() || operands_ != trace_.operands.size() ||
        fresh_ != trace_.fresh.size()) {
      throw BadTrace(str_cat("of ", trace_.ops.size(), " ops, only the first ", ops_, " run"));
    }
  }

 private:
  void check_op(std::size_t at, std::uint32_t index) {
    if (index >= trace_.ops.size()) {
      throw BadTrace(str_cat("event ", at, ": unknown op ", index));
    }
    if (index != ops_) {
      throw BadTrace(
          str_cat("event ", at, ": op ", index, " runs where op ", ops_, " was expected"));
    }
    const TraceOp& op = trace_.ops[index];
    if (op.first_operand != operands_ || op.operand_count > trace_.operands.size() - operands_ ||
        op.first_fresh != fresh_ || op.fresh_count > trace_.fresh.size() - fresh_) {
      throw BadTrace(str_cat("event ", at, ": operands or results of op ", index, " do not follow",
                             " those of the previous op"));
    }
    ++ops_;
    operands_ += op.operand_count;
    fresh_ += op.fresh_count;
  }

  void check_plan(std::size_t at, std::uint32_t index) {
    if (index >= trace_.plans.size() || index != plans_) {
      throw BadTrace(str_cat("event ", at, ": plan ", index, " does not exist or is out of order"));
    }
    const TracePlan& plan = trace_.plans[index];
    if (plan.first_eviction != evictions_ ||
        plan.eviction_count > trace_.evictions.size() - evictions_ || plan.first_block != blocks_ ||
        plan.block_count > trace_.blocks.size() - blocks_ || plan.first_start != starts_ ||
        plan.start_count > trace_.starts.size() - starts_) {
      throw BadTrace(str_cat("event ", at, ": what plan ", index, " names does not follow what the",
                             " previous plan names"));
    }
    ++plans_;
    evictions_ += plan.eviction_count;
    blocks_ += plan.block_count;
    starts_ += plan.start_count;
  }

  void check_list_op(std::size_t at, std::uint32_t index) {
    if (index >= trace_.list_ops.size() || index != list_ops_) {
      throw BadTrace(
          str_cat("event ", at, ": op on lists ", index, " does not exist or is out of order"));
    }
    const TraceListOp& op = trace_.list_ops[index];
    bool follow = op.first_part == parts_ && op.part_count <= trace_.parts.size() - parts_;
    for (std::uint32_t i = 0; follow && i < op.part_count; ++i) {
      const TracePart& part = trace_.parts[parts_++];
      follow = part.first_operand == part_operands_ &&
               part.operand_count <= trace_.part_operands.size() - part_operands_;
      part_operands_ += part.operand_count;
    }
    if (!follow) {
      throw BadTrace(str_cat("event ", at, ": parts or operands of op on lists ", index,
                             " do not follow those of the previous one"));
    }
    ++list_ops_;
  }

  const Trace& trace_;
  std::size_t list_ops_ = 0;
  std::size_t parts_ = 0;
  std::size_t part_operands_ = 0;
  std::size_t plans_ = 0;
  std::size_t evictions_ = 0;
  std::size_t blocks_ = 0;
  std::size_t starts_ = 0;
  std::size_t ops_ = 0;
  std::size_t operands_ = 0;
  std::size_t fresh_ = 0;
};

}  // namespace

void validate(const Trace& trace) {
  Parts(trace).check();
  detail::TraceValidator validator;
  detail::tell(trace, validator);
}

}  // namespace recoup
