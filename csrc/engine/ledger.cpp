#include "csrc/engine/ledger.h"

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

void Ledger::add(ValueId id, const Value& value) {
  Holding holding{
      .kind = value.leaf() || value.from_nothing ? HoldingKind::kLeaf : HoldingKind::kValue,
      .size = value.size,
      .maker = makers_.of(id)};
  if (value.storage.valid()) {
    const HeldStorage& storage = engine_.values()[value.storage];
    holding.name = storage.name;
    holding.birth = storage.birth;
  }
  peak_.push_back(holding);
}

// A walk over all values. Each peak is higher than the one before, so there are few once a budget
// has been reached, and before that not more than allocations of one step.
void Ledger::on_peak() {
  const Context& context = engine_.context();
  peak_.clear();
  nameless_known_ = false;
  peak_bytes_ = context.charged();
  Bytes rest = peak_bytes_;
  context.lineage.for_each_value([&](ValueId id, const Value& value) {
    if (value.block.valid() || (value.external != nullptr && !value.among_outside)) {
      add(id, value);
      rest -= value.size;
    }
  });
  const auto add_rest = [&](HoldingKind kind, Bytes size) {
    if (size > Bytes(0)) {
      peak_.push_back({.kind = kind, .size = size, .maker = makers_.running()});
      rest -= size;
    }
  };
  add_rest(HoldingKind::kOutside, context.options.outside);
  add_rest(HoldingKind::kAhead, context.charges.ahead);
  add_rest(HoldingKind::kWorkspace, rest);  // blocks that no value owns yet
}

void Ledger::name(StorageId storage, NameId name) {
  if (!nameless_known_) {
    nameless_.clear();
    for (std::size_t i = 0; i < peak_.size(); ++i) {
      if (peak_[i].birth != 0 && !peak_[i].name.valid()) {
        nameless_.emplace(peak_[i].birth, i);
      }
    }
    nameless_known_ = true;
  }
  if (const auto found = nameless_.find(engine_.values()[storage].birth);
      found != nameless_.end()) {
    peak_[found->second].name = name;
    nameless_.erase(found);
  }
}

void Ledger::check() const {
  Bytes sum{0};
  for (const Holding& holding : peak_) {
    RECOUP_CHECK(holding.size > Bytes(0));
    sum += holding.size;
  }
  RECOUP_CHECK(sum == peak_bytes_ && sum.count() == engine_.counters().peak_bytes, sum.count(),
               " in ", peak_.size(), " holdings at a peak of ", engine_.counters().peak_bytes);
}

}  // namespace recoup::detail
