#include "csrc/steps/track/step_log.h"

#include <utility>

#include "csrc/base/hash.h"

namespace recoup::detail {

void StepLog::begin_step() {
  hash_ = 0;
  last_ops_ = op_count_;
  op_count_ = 0;
  made_.clear();
  first_made_.assign(1, 0);
  last_fresh_ = std::exchange(fresh_, {});
}

StepHash StepLog::with(std::string_view name, std::span<const Operand> operands) const {
  StepHash hash = hash_with(hash_, name);
  for (const Operand& operand : operands) {
    const StorageId storage = operand.storage;
    if (!storage.valid()) {
      continue;
    }
    const std::uint64_t maker = made_last_.get(storage);
    const std::uint64_t before_step = all_ops_ - op_count_;
    hash = hash_with(hash, maker > before_step ? maker - before_step : 0);
    const std::uint64_t nbytes = counted(engine_.value(engine_.current(storage)).nbytes);
    const auto uses = static_cast<std::uint64_t>(operand.reads) |
                      static_cast<std::uint64_t>(operand.written) << 1 |
                      static_cast<std::uint64_t>(operand.overwritten) << 2 |
                      static_cast<std::uint64_t>(operand.left_out) << 3;
    hash = hash_with(hash, nbytes << 4 | uses);
  }
  return hash;
}

void StepLog::add_op(StepHash hash, const OpRecord& record, std::span<const Operand> operands,
                     std::span<const StorageId> fresh) {
  hash_ = hash;
  ++all_ops_;
  std::uint32_t slot = 0;
  for (std::size_t i = 0; i < fresh.size(); ++i) {
    hash_ = hash_with(hash_, counted(record.fresh[i].nbytes));
    made_fresh_[fresh[i]] = {.op = all_ops_, .slot = slot};
    fresh_.storages.push_back(engine_.values().ticket(fresh[i]));
    add_made(fresh[i], slot++);
  }
  for (const Operand& operand : operands) {
    if (operand.storage.valid() && operand.written) {
      add_made(operand.storage, slot++);
    }
  }
  first_made_.push_back(static_cast<std::uint32_t>(made_.size()));
  fresh_.first.push_back(static_cast<std::uint32_t>(fresh_.storages.size()));
  ++op_count_;
}

void StepLog::add_made(StorageId storage, std::uint32_t slot) {
  const ValueTicket ticket = engine_.values().ticket(engine_.current(storage));
  by_value_[engine_.current(storage)] = {.op = op_count_, .slot = slot};
  made_.push_back(ticket);
  made_last_[storage] = all_ops_;
}

std::span<const ValueTicket> StepLog::made_by(std::uint32_t op) const {
  if (op >= op_count_) {
    return {};
  }
  return std::span(made_).subspan(first_made_[op], first_made_[op + 1] - first_made_[op]);
}

std::optional<Made> StepLog::maker_since(StorageId id, std::uint64_t ops_before) const {
  const Maker& maker = made_fresh_.get(id);
  if (maker.op <= ops_before) {
    return std::nullopt;
  }
  return Made{.op = static_cast<std::uint32_t>(maker.op - ops_before - 1), .slot = maker.slot};
}

std::optional<Made> StepLog::maker_in_step(StorageId id) const {
  return maker_since(id, all_ops_ - op_count_);
}

std::optional<Made> StepLog::maker_in_last_step(StorageId id) const {
  return maker_since(id, all_ops_ - op_count_ - last_ops_);
}

ValueId StepLog::value(const Made& made) const {
  if (!made.in_step()) {
    const StorageId id = names_ == nullptr ? storage(made) : names_->find(made);
    return id.valid() && engine_.values().contains(id) ? engine_.current(id) : ValueId();
  }
  const std::span<const ValueTicket> all = made_by(made.op);
  if (made.slot < all.size()) {
    const ValueTicket& ticket = all[made.slot];
    const bool orphan = is_orphan(ticket.value) && by_value_.get(ticket.value) == made;
    if (orphan || engine_.values().holds(ticket)) {
      return ticket.value;
    }
  }
  const StorageId id = made_in_step(made);
  return id.valid() ? engine_.current(id) : ValueId();
}

ValueId StepLog::candidate(const Made& made) const {
  const ValueId id = value(made);
  const bool can_go = id.valid() && engine_.value(id).candidate_index != Value::kNotCandidate;
  return can_go ? id : ValueId();
}

ValueId StepLog::spillable(const Made& made) const {
  const ValueId id = value(made);
  const bool written = id.valid() && engine_.value(id).resident() && engine_.value(id).copying;
  return written ? id : candidate(made);
}

// Invalid: the storage does not exist any more.
StorageId StepLog::storage(const Made& before) const {
  if (before.op == Made::kBefore) {
    const StorageId id(before.slot);
    return engine_.values().contains(id) && !maker_in_last_step(id) ? id : StorageId();
  }
  return find(last_fresh_, before.op - Made::kLastStep, before.slot);
}

StorageId StepLog::find(const Fresh& fresh, std::size_t op, std::size_t slot) const {
  if (op + 1 >= fresh.first.size() || slot >= fresh.first[op + 1] - fresh.first[op]) {
    return {};
  }
  const PinTicket& ticket = fresh.storages[fresh.first[op] + slot];
  return engine_.values().holds(ticket) ? ticket.storage : StorageId();
}

// Whether the value is still on record for others that are computed from it, without the op that
// made it and without a storage.
bool StepLog::is_orphan(ValueId id) const {
  const Lineage& lineage = engine_.context().lineage;
  return id.valid() && lineage.contains(id) && !lineage[id].recomputable() &&
         !lineage[id].storage.valid();
}

std::optional<Made> StepLog::name_of(StorageId id) const {
  if (names_ != nullptr) {
    return names_->name_of(id);
  }
  if (std::optional<Made> made = maker_in_last_step(id)) {
    made->op += Made::kLastStep;
    return made;
  }
  return Made{.op = Made::kBefore, .slot = id.index()};
}

std::optional<Made> StepLog::name_in_next_step(StorageId id) const {
  if (std::optional<Made> made = maker_in_step(id)) {
    made->op += Made::kLastStep;
    return made;
  }
  const std::optional<Made> name = name_of(id);
  return name && name->op == Made::kBefore ? name : std::nullopt;
}

std::optional<Made> StepLog::find(ValueId id) const {
  if (const std::optional<Made> made = find_made(id)) {
    return made;
  }
  const StorageId storage = engine_.value(id).storage;
  if (!storage.valid()) {
    return std::nullopt;
  }
  if (const std::optional<Made> made = maker_in_step(storage)) {
    return engine_.current(storage) == id ? made : std::nullopt;
  }
  return name_of(storage);
}

std::optional<Made> StepLog::find_made(ValueId id) const {
  const Made made = by_value_.get(id);
  const std::span<const ValueTicket> all = made_by(made.op);
  if (made.slot >= all.size() || all[made.slot].value != id ||
      !(engine_.values().holds(all[made.slot]) || is_orphan(id))) {
    return std::nullopt;
  }
  return made;
}

}  // namespace recoup::detail
