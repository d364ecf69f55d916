// How a simulator runs an op of its trace, and replays it.
#include <functional>
#include <optional>
#include <utility>

#include "csrc/engine/program/program_kernel.h"
#include "csrc/simulator/simulator.h"

namespace recoup::detail {

void Simulator::run_op(const TraceOp& op) {
  operands_.clear();
  for (const TraceOperand& operand : trace_.operands_of(op)) {
    operands_.push_back({.storage = storages_[operand.storage],
                         .value = {},
                         .reads = operand.reads,
                         .written = operand.written,
                         .overwritten = operand.overwritten,
                         .left_out = operand.left_out,
                         .overwritable = operand.overwritable});
  }
  kernels_.find_held(number_of(op), event_);
  engine_->op().begin(trace_.names[op.name], operands_);
  if (op.once) {
    engine_->op().run_once();
  }
  try {
    run_in_budget(op);
  } catch (const OutOfBudget&) {
    engine_->op().abort(operands_, limits_of(op));
    throw;
  }
  if (op.failed) {
    kernels_.free_results(op);
    engine_->op().abort(operands_, limits_of(op));
  } else {
    end_op(op);
  }
  ++op_;
  if (uses_) {
    uses_->advance(op_);
  }
}

class Simulator::SimulatedKernel final : public ProgramKernel {
 public:
  SimulatedKernel(Simulator& simulator, const TraceOp& op) : simulator_(simulator), op_(op) {}

  std::optional<OutOfBudgetReport> run(const Attempt& attempt) override {
    KernelRunner& kernels = simulator_.kernels_;
    if (attempt.in_place && !kernels.makes_result_first(op_, engine_op().handover().nbytes())) {
      OutOfBudgetReport report;
      report.reason = Handover::kNotTaken;
      return report;
    }
    try {
      kernels.run(op_, KernelRunner::Pass::kFirst, attempt);
      return std::nullopt;
    } catch (const OutOfBudget& error) {
      if (kernels.made() < op_.copies) {
        throw;  // a live op fails before its kernel runs
      }
      return error.report();
    }
  }
  [[nodiscard]] KernelLimits limits() const override { return limits_of(op_); }
  bool prepare(const Attempt& /*next*/, const std::function<bool()>& measure) override {
    return begin_again(measure, engine_op());
  }

 private:
  [[nodiscard]] std::span<const Operand> operands() const override { return simulator_.operands_; }
  [[nodiscard]] ProgramOp& engine_op() const { return simulator_.engine_->op(); }

  Simulator& simulator_;
  const TraceOp& op_;
};

void Simulator::run_in_budget(const TraceOp& op) {
  SimulatedKernel kernel(*this, op);
  if (std::optional<OutOfBudgetReport> failure = engine_->attempts().run(kernel)) {
    throw OutOfBudget(std::move(*failure));
  }
}

void Simulator::charge_window(Bytes window) {
  window_.change(
      window,
      [this](Bytes size) {
        const StorageId charged = engine_->add_external(&window_, size, Engine::Charge::kWindow);
        (void)engine_->user().pin(charged);
        return charged;
      },
      [this](StorageId charged) { engine_->storage_died(charged); });
}

void Simulator::end_op(const TraceOp& op) {
  std::vector<FreshStorage> fresh;
  for (const TraceFresh& each : trace_.fresh_of(op)) {
    const BlockId block = kernels_.take(each.allocation);
    fresh.push_back(block.valid()
                        ? content(block, each.nbytes)
                        : FreshStorage{.block = {},
                                       .nbytes = each.nbytes,
                                       .handle = const_cast<TraceFresh*>(&each),
                                       .overflow = KernelRunner::key_of(each.allocation)});
  }
  const bool overflows = kernels_.overflows();
  kernels_.check_end(op);
  std::vector<StorageId> made(fresh.size());
  const OpUses uses(operands_);
  OpRecord record{.inputs = uses.inputs,
                  .written = uses.written,
                  .fresh = fresh,
                  .cost = op.cost,
                  .workspace = op.workspace,
                  .payload = nullptr,
                  .verifiable = op.verifiable,
                  .recordable = false,
                  .record_bytes = op.record_bytes,
                  .repeatable = op.repeatable,
                  .why = overflows       ? NoReplay::kOverflow
                         : op.repeatable ? NoReplay::kNone
                                         : NoReplay::kOp,
                  .random = op.random,
                  .limits = limits_of(op)};
  if (noise_) {
    const Measurement measured = noise_->measure(number_of(op));
    record.cost = measured.took;
    record.cost_key = measured.key;
  }
  // The engine returns the payload unchanged.
  if (record.why == NoReplay::kNone) {
    record.why = engine_->op().why_unrecorded(record);
    record.recordable = record.why == NoReplay::kNone;
    record.payload = record.recordable ? const_cast<TraceOp*>(&op) : nullptr;
  }
  const Nanoseconds before = Nanoseconds(engine_->counters().op_ns);
  engine_->op().end(record, uses, operands_, made);
  plain_ += noise_ ? op.cost : Nanoseconds(engine_->counters().op_ns) - before;
  for (StorageId id : made) {
    add_storage(id);
  }
}

Measurement Simulator::replay(void* payload, std::span<const Location> /*inputs*/,
                              std::span<const PoolOffset> /*written*/, std::span<BlockId> outputs) {
  count_replay();
  const TraceOp& op = *static_cast<const TraceOp*>(payload);
  const Nanoseconds room_before = engine_->context().room_time;
  const KernelRunner::Nested nested(kernels_);
  kernels_.run(op, KernelRunner::Pass::kReplay);
  const std::span<const TraceFresh> fresh = trace_.fresh_of(op);
  for (std::size_t i = 0; i < fresh.size(); ++i) {
    outputs[i] = kernels_.take(fresh[i].allocation);
  }
  replayed_ += op.cost;
  if (!noise_) {
    return {};
  }
  Measurement measured = noise_->measure(number_of(op));
  measured.took += engine_->context().room_time - room_before;  // and subtracts this time again
  return measured;
}

}  // namespace recoup::detail
