// The life of a program's op, as whoever runs it sees it: begin, kernel, end.
#include "csrc/engine/op.h"

#include <algorithm>

#include "csrc/engine/engine.h"

namespace recoup::detail {
namespace {

Few<ValueId> pinned_by(std::span<const Operand> operands) {
  Few<ValueId> pinned;
  for (const Operand& operand : operands) {
    if (operand.value.valid()) {
      pinned.push_back(operand.value);
    }
  }
  return pinned;
}

// The blocks that an op allocates to stay.
Bytes made_by(const OpRecord& record) {
  Bytes made{0};
  for (const FreshStorage& fresh : record.fresh) {
    made += fresh.nbytes;
  }
  return made;
}

}  // namespace

OpUses::OpUses(std::span<const Operand> operands) {
  for (const Operand& operand : operands) {
    if (operand.reads && operand.value.valid()) {
      inputs.push_back(operand.value);
    }
    if (operand.written && operand.storage.valid()) {
      const WrittenStorage each{.storage = operand.storage, .overwritten = operand.overwritten};
      if (operand.left_out) {
        in_passing.push_back(each);
      } else {
        written.push_back(each);
      }
    }
  }
}

void Engine::release_operands(std::span<const Operand> operands) noexcept {
  for (const Operand& operand : operands) {
    if (operand.value.valid()) {
      Value& value = lineage_[operand.value];
      --value.fixed;
      values_.hard_unpin(operand.value, value);
    }
  }
}

void Engine::begin_op(std::string_view name, std::span<Operand> operands) {
  set_running_op(name);
  const std::int64_t replays = stats_.replays;
  try {
    if (conductor_ != nullptr) {
      conductor_->before_op(name, operands);
    }
    take_operands(operands);
  } catch (...) {
    set_running_op({});  // the name is the caller's
    throw;
  }
  placer_.begin(name);
  stats_.replay_chain_max = std::max(stats_.replay_chain_max, stats_.replays - replays);
  if (observer_ != nullptr) {
    observer_->on_op_begin(name, operands);
  }
}

void Engine::take_operands(std::span<Operand> operands) {
  Few<StorageId> written;
  int read = 0;
  for (const Operand& operand : operands) {
    if (operand.storage.valid()) {
      read += static_cast<int>(operand.reads);
      if (operand.written) {
        written.push_back(operand.storage);
      }
    }
  }
  for (const Operand& operand : operands) {
    // By itself alone a content is only scaled: that is no update of state.
    if (operand.storage.valid() && operand.written && operand.reads && !operand.overwritten &&
        read > 1) {
      make_state(operand.storage);
    }
  }
  for (;;) {
    for (StorageId storage : std::span<const StorageId>(written)) {
      before_write(storage);
    }
    for (Operand& operand : operands) {
      if (operand.storage.valid() && (operand.reads || operand.written)) {
        operand.value = current(operand.storage);
      }
    }
    acquire(pinned_by(operands));
    if (start_writing(written)) {
      break;
    }
    release_operands(operands);
  }
  int fixed = 0;
  bool again = true;
  for (const Operand& operand : operands) {
    if (operand.value.valid()) {
      Value& value = lineage_[operand.value];
      value.was_read |= operand.reads && !operand.written;
      fixed += static_cast<int>(value.block.valid());
      again &= !operand.written || operand.overwritten || operand.left_out;
    }
  }
  enough_.begin_op(plain_state(), fixed, false);
  if (options_.in_place == InPlace::kCopy) {
    try {
      copy_before_write(written);
    } catch (...) {
      discard_copies(written);
      enough_.end_op();
      release_operands(operands);
      throw;
    }
  }
  enough_.begin_op(plain_state(), fixed, again);
}

bool Engine::retry_op(std::span<const Operand> operands, Bytes need) {
  if (observer_ != nullptr) {
    observer_->on_op_retry();
  }
  enough_.run_once();  // again is not again and again
  return defragment(pinned_by(operands), need);
}

// Priced by its bytes, an op costs the same in every run.
Nanoseconds Engine::cost_by_bytes(const OpRecord& record) const {
  Nanoseconds cost(1 + made_by(record).count());
  for (ValueId input : record.inputs) {
    cost += Nanoseconds(lineage_[input].size.count());
  }
  return cost;
}

void Engine::end_op(OpRecord& record, const OpUses& uses, std::span<const Operand> operands,
                    std::span<StorageId> storages) {
  fail(uses.in_passing);
  if (options_.cost_model == CostModel::kBytes) {
    record.cost = cost_by_bytes(record);
  }
  if (observer_ != nullptr && record.payload != nullptr) {
    record.record_bytes = Bytes(static_cast<std::int64_t>(device_.payload_bytes(record.payload)));
  }
  placer_.learn(running_op_, record.cost, made_by(record));
  placer_.end();
  enough_.end_op();
  finish(record, storages);
  if (observer_ != nullptr) {
    observer_->on_op_end(record, operands, storages);
  }
  release_operands(operands);
  set_running_op({});
  if (conductor_ != nullptr) {
    conductor_->after_op();
  }
  if (options_.evict_after_op) {
    evict_everything();
  }
}

void Engine::abort_op(std::span<const Operand> operands) {
  const OpUses uses(operands);
  placer_.end();
  enough_.end_op();
  fail(uses.written);
  fail(uses.in_passing);
  if (observer_ != nullptr) {
    observer_->on_op_failed();
  }
  release_operands(operands);
  set_running_op({});
}

}  // namespace recoup::detail
