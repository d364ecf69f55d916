#include "csrc/engine/reports/ledger.h"

#include "csrc/base/check.h"

namespace recoup::detail {

MakerWork& Ledger::of(MakerId maker) {
  if (!maker.valid()) {
    return unknown_;
  }
  if (maker.index() >= work_.size()) {
    work_.resize(maker.index() + 1);
  }
  return work_[maker.index()];
}

void Ledger::on_op_end(const OpRecord& record, std::span<const Operand> /*operands*/,
                       std::span<const StorageId> /*fresh*/) {
  MakerWork& work = of(makers_.running());
  ++work.ops;
  work.op_ns += record.cost.count();
}

void Ledger::on_evict(ValueId value) {
  MakerWork& work = of(makers_.of(value));
  ++work.evictions;
  work.evicted_bytes += engine_.value(value).size.count();
}

void Ledger::on_replay(std::string_view /*name*/, OpId id, const Op& op) {
  MakerWork& work = of(makers_.of(id));
  ++work.replays;
  work.replay_ns += op.cost.count();
}

// Each peak is higher than the one before. So there are few once a budget has been reached, and
// before that no more than allocations in one step.
void Ledger::on_peak() { peak_.take(engine_, makers_); }

// The program may catch the error and go on: the last one is reported.
void Ledger::on_out_of_budget(const OutOfBudgetReport& report) {
  const bool in_op = !engine_.context().running_op.empty();
  refusal_.emplace();
  refusal_->report = report;
  refusal_->maker = in_op ? makers_.running() : MakerId();
  at_refusal_.take(engine_, makers_);
}

std::optional<Refusal> Ledger::refusal() const {
  std::optional<Refusal> reported = refusal_;
  if (reported) {
    reported->charged = at_refusal_.charged();
    reported->holdings = at_refusal_.rows();
  }
  return reported;
}

void Ledger::name(StorageId storage, NameId name) {
  const std::uint64_t birth = engine_.values()[storage].birth;
  peak_.name(birth, name);
  at_refusal_.name(birth, name);
}

void Ledger::check() const {
  peak_.check();
  at_refusal_.check();
  RECOUP_CHECK(peak_.charged().count() == engine_.counters().peak_bytes, peak_.charged().count(),
               " for a peak of ", engine_.counters().peak_bytes);
}

}  // namespace recoup::detail
