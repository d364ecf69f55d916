#include "csrc/trace/recorder.h"

#include <utility>

#include "csrc/base/check.h"

namespace recoup::detail {

using Kind = TraceEvent::Kind;

void TraceRecorder::put(std::vector<std::uint32_t>& table, std::uint32_t index,
                        std::uint32_t number) {
  if (index >= table.size()) {
    table.resize(index + std::size_t{256}, kNone);
  }
  table[index] = number;
}

std::uint32_t TraceRecorder::name_index(std::string_view name) {
  const auto [found, is_new] =
      names_.try_emplace(std::string(name), static_cast<std::uint32_t>(names_.size()));
  if (is_new) {
    sink_.add_name(name);
  }
  return found->second;
}

std::uint32_t TraceRecorder::kernel_index() {
  std::string key;
  key.reserve(steps_.size() * 9);
  for (const KernelStep& step : steps_) {
    const bool frees = step.kind == KernelStep::Kind::kFree;
    const std::int64_t number = frees ? step.index : step.size.count();
    key.push_back(frees ? 'f' : 'a');
    key.append(reinterpret_cast<const char*>(&number), sizeof number);
  }
  const auto [found, is_new] =
      kernels_.try_emplace(std::move(key), static_cast<std::uint32_t>(kernels_.size()));
  if (is_new) {
    sink_.add_kernel(steps_);
  }
  return found->second;
}

void TraceRecorder::mark_step(std::string_view name) {
  sink_.add_event({.kind = Kind::kStep, .index = name_index(name), .size = Bytes(0)});
}

void TraceRecorder::add(Kind kind, StorageId storage) {
  const TraceEvent event{.kind = kind, .index = storages_[storage.index()], .size = Bytes(0)};
  if (in_op_) {
    after_.push_back(event);
  } else {
    sink_.add_event(event);
  }
}

void TraceRecorder::on_allocate(BlockId block, Bytes nbytes) {
  if (in_op_) {
    steps_.push_back({.kind = KernelStep::Kind::kAllocate, .index = 0, .size = nbytes});
    put(allocations_, block.index(), static_cast<std::uint32_t>(made_.size()));
    made_.push_back(block);
    return;
  }
  put(blocks_, block.index(), block_count_++);
  sink_.add_event({.kind = Kind::kAllocate, .index = 0, .size = nbytes});
}

void TraceRecorder::on_free(BlockId block) {
  if (in_op_ && block.index() < allocations_.size() && allocations_[block.index()] != kNone) {
    steps_.push_back({.kind = KernelStep::Kind::kFree,
                      .index = std::exchange(allocations_[block.index()], kNone),
                      .size = Bytes(0)});
    return;
  }
  const TraceEvent event{.kind = Kind::kFree, .index = blocks_[block.index()], .size = Bytes(0)};
  if (in_op_) {
    after_.push_back(event);
  } else {
    sink_.add_event(event);
  }
}

void TraceRecorder::on_external(StorageId storage, Bytes nbytes) {
  RECOUP_CHECK(!in_op_);
  add_storage(storage);
  sink_.add_event({.kind = Kind::kExternal, .index = 0, .size = nbytes});
}

void TraceRecorder::on_adopt(const FreshStorage& fresh, StorageId storage) {
  RECOUP_CHECK(!in_op_);
  add_storage(storage);
  sink_.add_event(
      {.kind = Kind::kAdopt, .index = blocks_[fresh.block.index()], .size = fresh.nbytes});
}

void TraceRecorder::on_death(StorageId storage) { add(Kind::kDie, storage); }

void TraceRecorder::on_forsake(StorageId storage) { add(Kind::kForsake, storage); }

void TraceRecorder::on_settle() {
  sink_.add_event({.kind = Kind::kSettle, .index = 0, .size = Bytes(0)});
}

void TraceRecorder::on_op_begin(std::string_view name, std::span<const Operand> operands) {
  RECOUP_CHECK(!in_op_);
  in_op_ = true;
  name_ = name_index(name);
  operands_.clear();
  steps_.clear();
  made_.clear();
  for (const Operand& operand : operands) {
    if (operand.storage.valid()) {
      operands_.push_back({.storage = storages_[operand.storage.index()],
                           .reads = operand.reads,
                           .written = operand.written,
                           .overwritten = operand.overwritten,
                           .left_out = operand.left_out});
    }
  }
}

void TraceRecorder::on_op_retry() {
  steps_.clear();
  made_.clear();
}

void TraceRecorder::on_op_end(const OpRecord& record, std::span<const StorageId> fresh) {
  std::vector<TraceFresh> returned;
  for (std::size_t i = 0; i < fresh.size(); ++i) {
    const BlockId block = record.fresh[i].block;
    const std::uint32_t allocation = block.index() < allocations_.size()
                                         ? std::exchange(allocations_[block.index()], kNone)
                                         : kNone;
    add_storage(fresh[i]);
    if (allocation != kNone) {
      // What was made earlier and is only handed out now comes after the op, and so after these.
      RECOUP_CHECK(after_adopts_ == 0);
      returned.push_back({.allocation = allocation, .nbytes = record.fresh[i].nbytes});
    } else {
      ++after_adopts_;
      after_.push_back(
          {.kind = Kind::kAdopt, .index = blocks_[block.index()], .size = record.fresh[i].nbytes});
    }
  }
  TraceOp op;
  op.cost = record.cost;
  op.workspace = record.workspace;
  op.record_bytes = record.record_bytes;
  op.repeatable = record.repeatable;
  op.random = record.random;
  op.verifiable = record.verifiable;
  end_op(op, returned);
}

void TraceRecorder::on_op_failed() {
  TraceOp op;
  op.failed = true;
  end_op(op, {});
}

// What the kernel goes on holding without returning it is a block of its own from here on.
void TraceRecorder::end_op(TraceOp op, std::span<const TraceFresh> fresh) {
  std::vector<TraceEvent> kept;
  for (std::uint32_t i = 0; i < made_.size(); ++i) {
    std::uint32_t& allocation = allocations_[made_[i].index()];
    if (allocation == i) {
      allocation = kNone;
      put(blocks_, made_[i].index(), block_count_++);
      kept.push_back({.kind = Kind::kAllocate, .index = 0, .size = size_of(i)});
      steps_.push_back({.kind = KernelStep::Kind::kFree, .index = i, .size = Bytes(0)});
    }
  }
  op.name = name_;
  op.kernel = kernel_index();
  sink_.add_op(op, operands_, fresh);
  for (const std::vector<TraceEvent>* events : {&kept, &after_}) {
    for (const TraceEvent& event : *events) {
      sink_.add_event(event);
    }
  }
  after_.clear();
  after_adopts_ = 0;
  in_op_ = false;
}

// Of the kernel's allocation `number`.
Bytes TraceRecorder::size_of(std::uint32_t number) const {
  for (const KernelStep& step : steps_) {
    if (step.kind == KernelStep::Kind::kAllocate && number-- == 0) {
      return step.size;
    }
  }
  RECOUP_CHECK(false);
}

}  // namespace recoup::detail
