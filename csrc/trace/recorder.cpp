#include "csrc/trace/recorder.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "csrc/base/check.h"
#include "csrc/trace/limits.h"

namespace recoup::detail {

using EventKind = TraceEvent::Kind;

void TraceRecorder::put(std::vector<std::uint32_t>& table, std::uint32_t index,
                        std::uint32_t number) {
  if (index >= table.size()) {
    table.resize(index + std::size_t{256}, kNone);
  }
  table[index] = number;
}

std::uint32_t TraceRecorder::name_index(std::string_view whole) {
  if (const auto known = names_.find(whole); known != names_.end()) [[likely]] {
    return known->second;
  }
  const std::string_view name = recordable_name(whole);
  const auto [found, is_new] =
      names_.try_emplace(std::string(name), static_cast<std::uint32_t>(names_.size()));
  if (is_new) {
    sink_.add_name(name);
  }
  return found->second;
}

std::uint32_t TraceRecorder::kernel_index(std::span<const KernelStep> steps) {
  std::string& key = kernel_key_;
  key.clear();
  for (const KernelStep& step : steps) {
    const bool frees = step.kind == KernelStep::Kind::kFree;
    const std::int64_t number = frees ? step.index : step.size.count();
    key.push_back(frees ? 'f' : 'a');
    key.append(reinterpret_cast<const char*>(&number), sizeof number);
  }
  const auto [found, is_new] =
      kernels_.try_emplace(key, static_cast<std::uint32_t>(kernels_.size()));
  if (is_new) {
    sink_.add_kernel(steps);
  }
  return found->second;
}

TraceRecorder::RunningOp& TraceRecorder::add_running() {
  if (spare_.empty()) {
    return running_.emplace_back();
  }
  running_.push_back(std::move(spare_.back()));
  spare_.pop_back();
  return running_.back();
}

void TraceRecorder::remove_running(RunningOp& op) {
  op.operands.clear();
  op.steps.clear();
  op.made.clear();
  op.overflow.clear();
  op.may_overflow = false;
  spare_.push_back(std::move(op));
  running_.erase(running_.begin() + (&op - running_.data()));
}

TraceRecorder::RunningOp& TraceRecorder::running() {
  const std::thread::id self = std::this_thread::get_id();
  for (RunningOp& op : running_) {
    if (op.thread == self) {
      return op;
    }
  }
  return running_.back();
}

void TraceRecorder::tell(const TraceEvent& event) {
  if (running_.empty()) {
    sink_.add_event(event);
  } else {
    deferred_.push_back(event);
  }
}

void TraceRecorder::tell_deferred() {
  for (const TraceEvent& event : deferred_) {
    if (event.kind == EventKind::kParts) {
      const ListOp& list = deferred_list_ops_[event.index];
      sink_.add_list_op(list.op, list.parts, list.operands);
    } else {
      sink_.add_event(event);
    }
  }
  deferred_.clear();
  deferred_list_ops_.clear();
}

void TraceRecorder::add(EventKind kind, StorageId storage, Bytes size) {
  if (get(storages_, storage.index()) == kNone) {
    return;  // the charge for overflow memory
  }
  tell({.kind = kind, .index = storages_[storage.index()], .size = size});
}

// Blocks from before the step are named by the trace's numbers of storages. A storage that the
// trace does not have is left out.
void TraceRecorder::on_plan(const TracePlan& plan, const TracePlanLists& lists) {
  // A storage from before the recording cannot be named: its eviction stands for none, and its
  // block is left out.
  std::vector<TraceEviction> evictions(lists.evictions.begin(), lists.evictions.end());
  for (TraceEviction& each : evictions) {
    if (each.op == TraceEviction::kStorage) {
      const std::uint32_t number = get(storages_, each.slot);
      each = {
          .ops = each.ops,
          .op = number == kNone ? TraceEviction::kLastRun - 1 : each.op,
          .slot = number == kNone ? static_cast<std::uint32_t>(&each - evictions.data()) : number,
          .spills = each.spills};
    }
  }
  std::vector<TraceBlock> blocks;
  for (TraceBlock block : lists.blocks) {
    if (block.op == TraceEviction::kStorage) {
      block.slot = get(storages_, block.slot);
      if (block.slot == kNone) {
        continue;
      }
    }
    blocks.push_back(block);
  }
  std::vector<TraceStart> starts;
  for (TraceStart start : lists.starts) {
    if (start.storage > 0) {
      const std::uint32_t number = get(storages_, start.storage - 1);
      if (number == kNone) {
        continue;
      }
      start.storage = number + 1;
    }
    starts.push_back(start);
  }
  sink_.add_plan(plan, {.evictions = evictions, .blocks = blocks, .starts = starts});
}

void TraceRecorder::on_step(std::string_view name) {
  if (times_ == Times::kOfSteps) {
    using Microseconds = std::chrono::microseconds;
    const auto now = std::chrono::steady_clock::now();
    const auto took = std::chrono::duration_cast<Microseconds>(now - step_began_).count();
    step_began_ = now;
    const auto most = static_cast<std::int64_t>(std::numeric_limits<std::int32_t>::max());
    tell({.kind = EventKind::kTime,
          .index = static_cast<std::uint32_t>(std::clamp(took, std::int64_t{0}, most)),
          .size = Bytes(0)});
  }
  tell({.kind = EventKind::kStep, .index = name_index(name), .size = Bytes(0)});
}

void TraceRecorder::on_allocate(BlockId block, Bytes nbytes) {
  if (!running_.empty()) {
    RunningOp& op = running();
    op.steps.push_back({.kind = KernelStep::Kind::kAllocate, .index = 0, .size = nbytes});
    put(allocations_, block.index(), static_cast<std::uint32_t>(op.made.size()));
    op.made.push_back(block);
    return;
  }
  put(blocks_, block.index(), block_count_++);
  sink_.add_event({.kind = EventKind::kAllocate, .index = 0, .size = nbytes});
}

void TraceRecorder::on_free(BlockId block) {
  if (const std::uint32_t number = get(allocations_, block.index()); number != kNone) {
    allocations_[block.index()] = kNone;
    for (RunningOp& op : running_) {
      if (number < op.made.size() && op.made[number] == block) {
        op.steps.push_back({.kind = KernelStep::Kind::kFree, .index = number, .size = Bytes(0)});
      }
    }
  } else if (const std::uint32_t outer = get(blocks_, block.index()); outer != kNone) {
    blocks_[block.index()] = kNone;
    tell({.kind = EventKind::kFree, .index = outer, .size = Bytes(0)});
  }
}

void TraceRecorder::on_external(StorageId storage, const OutsideStorage& outside) {
  if (outside.window) {
    put(storages_, storage.index(), kNone);
    return;
  }
  add_storage(storage);
  std::uint32_t index = outside.among_outside ? 1 : 0;
  if (outside.segment.valid()) {
    index = outside.segment.index() + 2;
  }
  sink_.add_event({.kind = EventKind::kExternal, .index = index, .size = outside.nbytes});
}

void TraceRecorder::on_segment(const SegmentChange& change) {
  const TraceEvent event{
      .kind = EventKind::kSegment, .index = change.segment.index(), .size = change.returnable};
  if (change.returnable > Bytes(0)) {
    tell(event);
  } else {
    sink_.add_event(event);  // a storage in a new segment may follow at once
  }
}

void TraceRecorder::on_adopt(const FreshStorage& fresh, StorageId storage) {
  take_from_kernel(fresh.block);
  if (get(blocks_, fresh.block.index()) == kNone) {
    // It was allocated while observers were not called: by another thread, during a replay.
    put(blocks_, fresh.block.index(), block_count_++);
    sink_.add_event({.kind = EventKind::kAllocate, .index = 0, .size = fresh.nbytes});
  }
  const std::uint32_t block = std::exchange(blocks_[fresh.block.index()], kNone);
  add_storage(storage);
  sink_.add_event({.kind = EventKind::kAdopt, .index = block, .size = fresh.nbytes});
}

void TraceRecorder::on_death(StorageId storage) { add(EventKind::kDie, storage); }

void TraceRecorder::on_disown(StorageId storage) { add(EventKind::kDisown, storage); }

void TraceRecorder::on_materialize_all() {
  tell({.kind = EventKind::kScopeExit, .index = 0, .size = Bytes(0)});
}

void TraceRecorder::on_parts_begin(std::string_view name, std::span<const Part> parts) {
  in_parts_ = true;
  ListOp list{.op = {.name = name_index(name)}, .parts = {}, .operands = {}};
  for (const Part& part : parts) {
    list.parts.push_back({.first_operand = 0,
                          .operand_count = static_cast<std::uint32_t>(part.operands.size()),
                          .workspace = part.workspace});
    for (const PartOperand& operand : part.operands) {
      list.operands.push_back(
          {.storage = storages_[operand.storage.index()], .written = operand.written});
    }
  }
  if (running_.empty()) {
    sink_.add_list_op(list.op, list.parts, list.operands);
    return;
  }
  deferred_.push_back({.kind = EventKind::kParts,
                       .index = static_cast<std::uint32_t>(deferred_list_ops_.size()),
                       .size = Bytes(0)});
  deferred_list_ops_.push_back(std::move(list));
}

void TraceRecorder::on_parts_end() {
  if (std::exchange(in_parts_, false)) {
    tell({.kind = EventKind::kPartsEnd, .index = 0, .size = Bytes(0)});
  }
}

void TraceRecorder::on_op_begin(std::string_view name, std::span<const Operand> operands) {
  RunningOp& op = add_running();
  op.thread = std::this_thread::get_id();
  op.name = name_index(name);
  for (const Operand& operand : operands) {
    if (operand.storage.valid()) {
      op.operands.push_back({.storage = storages_[operand.storage.index()],
                             .reads = operand.reads,
                             .written = operand.written,
                             .overwritten = operand.overwritten,
                             .left_out = operand.left_out,
                             .overwritable = operand.overwritable});
    }
  }
}

void TraceRecorder::on_op_retry() {
  RunningOp& op = running();
  op.steps.clear();
  op.made.clear();
  op.overflow.clear();
}

// Recorded like a block of the pool: which allocations overflow is a decision of the engine.
void TraceRecorder::on_overflow(OverflowKey key, Bytes nbytes) {
  if (running_.empty()) {
    return;
  }
  RunningOp& op = running();
  op.may_overflow = true;
  op.overflow.emplace_back(key, static_cast<std::uint32_t>(op.made.size()));
  op.steps.push_back({.kind = KernelStep::Kind::kAllocate, .index = 0, .size = nbytes});
  op.made.emplace_back();
}

void TraceRecorder::on_overflow_free(OverflowKey key) {
  for (RunningOp& op : running_) {
    if (const std::uint32_t number = take_overflow(op, key); number != kNone) {
      op.steps.push_back({.kind = KernelStep::Kind::kFree, .index = number, .size = Bytes(0)});
    }
  }
}

std::uint32_t TraceRecorder::take_overflow(RunningOp& op, OverflowKey key) {
  const auto found = std::find_if(op.overflow.begin(), op.overflow.end(),
                                  [key](const auto& each) { return each.first == key; });
  if (found == op.overflow.end()) {
    return kNone;
  }
  const std::uint32_t number = found->second;
  op.overflow.erase(found);
  return number;
}

// The number of the allocation in the op's kernel; kNone: it was allocated before the op.
std::uint32_t TraceRecorder::take_allocation(RunningOp& op, const FreshStorage& fresh) {
  if (fresh.overflow != OverflowKey::kNone) {
    return take_overflow(op, fresh.overflow);
  }
  const std::uint32_t number = get(allocations_, fresh.block.index());
  if (number >= op.made.size() || op.made[number] != fresh.block) {
    return kNone;
  }
  allocations_[fresh.block.index()] = kNone;
  return number;
}

void TraceRecorder::on_op_end(const OpRecord& record, std::span<const Operand> /*operands*/,
                              std::span<const StorageId> fresh) {
  RunningOp& running_op = running();
  returned_.clear();
  older_.clear();
  for (std::size_t i = 0; i < fresh.size(); ++i) {
    const std::uint32_t number = take_allocation(running_op, record.fresh[i]);
    if (number == kNone) {
      older_.push_back(i);  // allocated before the op, which only returned it
      continue;
    }
    add_storage(fresh[i]);
    returned_.push_back({.allocation = number, .nbytes = record.fresh[i].nbytes});
  }
  TraceOp op;
  op.cost = record.cost;
  op.workspace = record.workspace;
  op.record_bytes = record.record_bytes;
  op.copies = record.copies;
  op.repeatable = record.repeatable;
  op.random = record.random;
  op.verifiable = record.verifiable;
  op.may_overflow = record.limits.may_overflow;
  op.once = record.limits.once;
  end_op(op, returned_);
  for (std::size_t i : older_) {
    if (record.fresh[i].overflow != OverflowKey::kNone) {
      on_external(fresh[i], {.nbytes = record.fresh[i].nbytes, .among_outside = true});
    } else {
      on_adopt(record.fresh[i], fresh[i]);
    }
  }
}

void TraceRecorder::on_op_failed(const KernelLimits& limits) {
  TraceOp op;
  op.may_overflow = limits.may_overflow;
  op.once = limits.once;
  op.failed = true;
  end_op(op, {});
}

// A block of another thread, which was attributed to a running op (see running()), becomes a block
// outside of ops.
void TraceRecorder::take_from_kernel(BlockId block) {
  const std::uint32_t number = get(allocations_, block.index());
  if (number == kNone) {
    return;
  }
  for (RunningOp& op : running_) {
    if (number >= op.made.size() || op.made[number] != block) {
      continue;
    }
    allocations_[block.index()] = kNone;
    op.steps.push_back({.kind = KernelStep::Kind::kFree, .index = number, .size = Bytes(0)});
    put(blocks_, block.index(), block_count_++);
    sink_.add_event({.kind = EventKind::kAllocate, .index = 0, .size = size_of(op, number)});
    return;
  }
}

Bytes TraceRecorder::size_of(const RunningOp& op, std::uint32_t number) {
  for (const KernelStep& step : op.steps) {
    if (step.kind == KernelStep::Kind::kAllocate && number-- == 0) {
      return step.size;
    }
  }
  return Bytes(0);
}

// A block that the kernel goes on holding without returning it becomes a block outside of ops: the
// next run of the kernel will not allocate it (workspaces of libraries, caches).
void TraceRecorder::let_go_of_blocks(RunningOp& op) {
  for (std::uint32_t i = 0; i < op.made.size(); ++i) {
    if (get(allocations_, op.made[i].index()) != i) {
      continue;
    }
    allocations_[op.made[i].index()] = kNone;
    put(blocks_, op.made[i].index(), block_count_++);
    op.steps.push_back({.kind = KernelStep::Kind::kFree, .index = i, .size = Bytes(0)});
    kept_.push_back({.kind = EventKind::kAllocate, .index = i + 1, .size = size_of(op, i)});
  }
}

// Overflow memory that the kernel neither returns nor frees costs nothing after it.
void TraceRecorder::free_overflow(RunningOp& op) {
  for (const auto& [key, number] : op.overflow) {
    op.steps.push_back({.kind = KernelStep::Kind::kFree, .index = number, .size = Bytes(0)});
  }
  op.overflow.clear();
}

void TraceRecorder::end_op(TraceOp op, std::span<const TraceFresh> fresh) {
  RunningOp& ended = running();
  let_go_of_blocks(ended);
  free_overflow(ended);
  op.name = ended.name;
  op.may_overflow |= ended.may_overflow;
  op.kernel = kernel_index(ended.steps);
  sink_.add_op(op, ended.operands, fresh);
  for (const TraceEvent& event : kept_) {
    sink_.add_event(event);
  }
  kept_.clear();
  remove_running(ended);
  if (running_.empty()) {
    tell_deferred();
  }
}

}  // namespace recoup::detail
