#include "csrc/foresight/step_log.h"

#include "csrc/base/hash.h"

namespace recoup::detail {

void StepLog::begin_step() {
  hash_ = 0;
  last_ops_ = op_count_;
  op_count_ = 0;
  made_.clear();
  first_made_.assign(1, 0);
}

StepHash StepLog::with(std::string_view name, std::span<const Operand> operands) const {
  StepHash hash = hash_with(hash_, name);
  for (const Operand& operand : operands) {
    const StorageId storage = operand.storage;
    if (!storage.valid()) {
      continue;
    }
    const std::uint64_t maker =
        storage.index() < made_last_.size() ? made_last_[storage.index()] : 0;
    const std::uint64_t before_step = all_ops_ - op_count_;
    hash = hash_with(hash, maker > before_step ? maker - before_step : 0);
    const auto nbytes =
        static_cast<std::uint64_t>(engine_.value(engine_.current(storage)).nbytes.count());
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
    hash_ = hash_with(hash_, static_cast<std::uint64_t>(record.fresh[i].nbytes.count()));
    set_fresh_maker(fresh[i], {.op = all_ops_, .slot = slot});
    add_made(fresh[i], slot++);
  }
  for (const Operand& operand : operands) {
    if (operand.storage.valid() && operand.written) {
      add_made(operand.storage, slot++);
    }
  }
  first_made_.push_back(static_cast<std::uint32_t>(made_.size()));
  ++op_count_;
}

void StepLog::add_made(StorageId storage, std::uint32_t slot) {
  const ValueTicket ticket = engine_.values().ticket(engine_.current(storage));
  if (ticket.value.valid()) {
    if (ticket.value.index() >= by_value_.size()) {
      by_value_.resize(ticket.value.index() + std::size_t{256});
    }
    by_value_[ticket.value.index()] = {.op = op_count_, .slot = slot};
  }
  made_.push_back(ticket);
  set_maker(storage, all_ops_);
}

std::span<const ValueTicket> StepLog::made_by(std::uint32_t op) const {
  if (op >= op_count_) {
    return {};
  }
  return std::span(made_).subspan(first_made_[op], first_made_[op + 1] - first_made_[op]);
}

void StepLog::set_maker(StorageId id, std::uint64_t op) {
  if (id.index() >= made_last_.size()) {
    made_last_.resize(id.index() + std::size_t{256}, 0);
  }
  made_last_[id.index()] = op;
}

void StepLog::set_fresh_maker(StorageId id, const Maker& maker) {
  if (id.index() >= made_fresh_.size()) {
    made_fresh_.resize(id.index() + std::size_t{256});
  }
  made_fresh_[id.index()] = maker;
}

std::optional<Made> StepLog::maker_since(StorageId id, std::uint64_t ops_before) const {
  if (id.index() >= made_fresh_.size() || made_fresh_[id.index()].op <= ops_before) {
    return std::nullopt;
  }
  const Maker& maker = made_fresh_[id.index()];
  return Made{.op = static_cast<std::uint32_t>(maker.op - ops_before - 1), .slot = maker.slot};
}

std::optional<Made> StepLog::maker_in_step(StorageId id) const {
  return maker_since(id, all_ops_ - op_count_);
}

std::optional<Made> StepLog::maker_in_last_step(StorageId id) const {
  return maker_since(id, all_ops_ - op_count_ - last_ops_);
}

std::optional<Made> StepLog::find(ValueId id) const {
  if (id.index() >= by_value_.size()) {
    return std::nullopt;
  }
  const Made made = by_value_[id.index()];
  const std::span<const ValueTicket> all = made_by(made.op);
  if (made.slot >= all.size() || all[made.slot].value != id ||
      !engine_.values().holds(all[made.slot])) {
    return std::nullopt;
  }
  return made;
}

}  // namespace recoup::detail
