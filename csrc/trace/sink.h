// TraceSink: receives a trace record by record, for a file or for memory.
#pragma once

#include <span>
#include <string_view>

#include "recoup/trace.h"

namespace recoup::detail {

// Names and kernels are numbered from 0 in the order in which they are added, and added before they
// are referred to.
class RECOUP_API TraceSink {
 public:
  virtual ~TraceSink() = default;
  // At most once, before everything else. The default is a CPU.
  virtual void set_device(const TraceDevice& device) = 0;
  virtual void add_name(std::string_view name) = 0;
  virtual void add_kernel(std::span<const KernelStep> steps) = 0;
  // first_operand and first_fresh of `op` are ignored.
  virtual void add_op(const TraceOp& op, std::span<const TraceOperand> operands,
                      std::span<const TraceFresh> fresh) = 0;
  // The indices and counts of `plan` are ignored.
  virtual void add_plan(const TracePlan& plan, const TracePlanLists& lists) = 0;
  // first_part of `op` and first_operand of `parts` are ignored: `operands` has the operands of all
  // parts in sequence.
  virtual void add_list_op(const TraceListOp& op, std::span<const TracePart> parts,
                           std::span<const TracePartOperand> operands) = 0;
  // Any event but kOp, kPlan and kParts.
  virtual void add_event(const TraceEvent& event) = 0;
};

// Sends a trace, whose indices must be in range, to a sink: the device, unless it is a CPU, names
// and kernels, then the events.
void tell(const Trace& trace, TraceSink& sink);

class RECOUP_API TraceBuilder final : public TraceSink {
 public:
  void set_device(const TraceDevice& device) override { trace_.device = device; }
  void add_name(std::string_view name) override { trace_.names.emplace_back(name); }
  void add_kernel(std::span<const KernelStep> steps) override {
    trace_.kernels.emplace_back(steps.begin(), steps.end());
  }
  void add_op(const TraceOp& op, std::span<const TraceOperand> operands,
              std::span<const TraceFresh> fresh) override;
  void add_plan(const TracePlan& plan, const TracePlanLists& lists) override;
  void add_list_op(const TraceListOp& op, std::span<const TracePart> parts,
                   std::span<const TracePartOperand> operands) override;
  void add_event(const TraceEvent& event) override { trace_.events.push_back(event); }

  [[nodiscard]] const Trace& trace() const { return trace_; }
  [[nodiscard]] Trace take() { return std::move(trace_); }

 private:
  Trace trace_;
};

}  // namespace recoup::detail
