#include "csrc/engine/program/program_op.h"

#include <algorithm>

#include "csrc/base/at_end.h"
#include "csrc/engine/tier/async_copies.h"

namespace recoup::detail {

ProgramOp::ProgramOp(Context& context, const Parts& parts)
    : context_(context),
      lineage_(context.lineage),
      values_(parts.values),
      candidates_(parts.candidates),
      evictor_(parts.evictor),
      enough_(parts.enough),
      replayer_(parts.replayer),
      freezer_(parts.freezer),
      records_(parts.records),
      write_behind_(parts.write_behind),
      read_ahead_(parts.read_ahead),
      handover_(parts.handover),
      slowdown_(context, parts.reporter) {}

// Also resets the storages to which the kernel gave other memory: they are no longer among the op's
// writes.
void ProgramOp::release_operands(std::span<const Operand> operands) noexcept {
  for (const Operand& operand : operands) {
    if (operand.value.valid()) {
      Value& value = lineage_[operand.value];
      value.writing = false;
      if (value.storage.valid()) {
        lineage_[values_.current(value.storage)].writing = false;
      }
      values_.release(operand.value);
    }
  }
}

void ProgramOp::begin(std::string_view name, std::span<Operand> operands) {
  context_.running_op = name;
  const std::int64_t replays = context_.stats.replays;
  context_.copies->finish_ended();
  AtEnd not_begun([this] {
    context_.running_op = {};  // the caller owns the name
    if (context_.observer != nullptr) {
      context_.observer->on_no_op();
    }
  });
  slowdown_.require_speed();
  if (context_.schedule != nullptr) {
    context_.schedule->before_op(name, operands);
  }
  if (context_.observer != nullptr) {
    context_.observer->on_op_ahead(name, operands);
  }
  take_operands(operands);
  not_begun.cancel();
  context_.placer.begin(name);
  if (const std::int64_t replayed = context_.stats.replays - replays; replayed > 0) {
    context_.stats.replay_chain_max = std::max(context_.stats.replay_chain_max, replayed);
    slowdown_.after_replays();
  }
  if (context_.observer != nullptr) {
    context_.observer->on_op_begin(name, operands);
  }
}

void ProgramOp::take_operands(std::span<Operand> operands) {
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
    // An op that reads only the written storage scales it: that is no update of state.
    if (operand.storage.valid() && operand.written && operand.reads && !operand.overwritten &&
        read > 1) {
      freezer_.make_state(operand.storage);
    }
  }
  for (;;) {
    for (StorageId storage : written) {
      values_.stop_copying(values_.current(storage));
      freezer_.before_write(storage);
    }
    for (Operand& operand : operands) {
      if (operand.storage.valid() && (operand.reads || operand.written)) {
        operand.value = values_.current(operand.storage);
      }
    }
    replayer_.acquire(pinned_by(operands));
    if (freezer_.start_writing(written)) {
      break;
    }
    release_operands(operands);
  }
  prepare(operands, written);
}

// Note [Enough] in enough.h.
void ProgramOp::prepare(std::span<const Operand> operands, std::span<const StorageId> written) {
  AtEnd not_begun([&] {
    records_.discard_copies(written);
    enough_.end_op();
    release_operands(operands);
  });
  int fixed = 0;
  bool again = true;
  for (const Operand& operand : operands) {
    if (operand.value.valid()) {
      Value& value = lineage_[operand.value];
      value.flags.was_read |= operand.reads && !operand.written;
      values_.used(operand.value);
      fixed += static_cast<int>(value.block.valid());
      again &= !operand.written || operand.overwritten || operand.left_out;
    }
  }
  enough_.begin_op(fixed, false);
  if (context_.options.in_place == InPlace::kCopy) {
    records_.copy_before_write(written);
  }
  enough_.begin_op(fixed, again);
  read_ahead_.before_kernel();
  not_begun.cancel();
}

void ProgramOp::begin_again() {
  if (context_.observer != nullptr) {
    context_.observer->on_op_retry();
  }
  enough_.begin_retry();
}

void ProgramOp::overflow(OverflowKey key, Bytes nbytes) {
  ++context_.stats.paged_allocations;
  context_.stats.paged_bytes += nbytes.count();
  if (context_.observer != nullptr) {
    context_.observer->on_overflow(key, nbytes);
  }
}

void ProgramOp::free_overflow(OverflowKey key) {
  if (context_.observer != nullptr) {
    context_.observer->on_overflow_free(key);
  }
}

void ProgramOp::end(OpRecord& record, const OpUses& uses, std::span<const Operand> operands,
                    std::span<StorageId> storages) {
  records_.make_unknown(uses.in_passing);
  if (context_.options.cost_model == CostModel::kBytes) {
    record.cost = records_.cost_by_bytes(record);
  } else if (record.cost_key != 0) {
    record.cost = context_.learn(record.cost_key, record.cost);
  }
  if (context_.observer != nullptr && record.payload != nullptr) {
    record.record_bytes =
        Bytes(static_cast<std::int64_t>(context_.device.payload_bytes(record.payload)));
  }
  context_.placer.learn(context_.running_op, record.cost, record.made());
  context_.placer.end();
  enough_.end_op();
  handover_.end_well();
  records_.finish(record, storages);
  if (context_.observer != nullptr) {
    context_.observer->on_op_end(record, operands, storages);
  }
  release_operands(operands);
  context_.running_op = {};
  if (context_.schedule != nullptr) {
    context_.schedule->after_op();
  }
  if (context_.options.evict_after_op) {
    evictor_.evict_everything_on_request();
  }
  write_behind_.after_op();
}

void ProgramOp::abort(std::span<const Operand> operands, const KernelLimits& limits) {
  const OpUses uses(operands);
  context_.placer.end();
  enough_.end_op();
  handover_.end();
  records_.make_unknown(uses.written);
  records_.make_unknown(uses.in_passing);
  if (context_.observer != nullptr) {
    context_.observer->on_op_failed(limits);
  }
  release_operands(operands);
  context_.running_op = {};
}

// Note [Late costs]
// An op has an estimated cost until its time is known. Once a result of it has been evicted, the
// estimate is part of the costs of components and neighborhoods. There it must stay, because it
// will be subtracted from these sums again. So the time replaces the estimate only while all
// results of the op have bytes or are gone.
void ProgramOp::learn_cost(const ValueTicket& made, Nanoseconds estimate, Nanoseconds cost) {
  if (context_.options.cost_model == CostModel::kBytes) {
    return;
  }
  context_.stats.op_ns += (cost - estimate).count();
  if (!values_.holds(made)) {
    return;
  }
  const OpId op = lineage_[made.value].producer;
  bool passed_on = false;
  lineage_.for_each_output(op, [&](ValueId id) { passed_on |= lineage_[id].evicted(); });
  if (passed_on) {
    return;
  }
  lineage_.set_cost(op, cost);
  lineage_.for_each_output(op, [&](ValueId id) { candidates_.touch(id); });
}

}  // namespace recoup::detail
