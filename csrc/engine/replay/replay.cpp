// Note [What may happen during a replay]
// Device::replay releases the engine's lock while a kernel runs. Other threads may then free
// blocks, allocate (and so evict unpinned values) and let storages die. So no reference to a record
// is kept across that call, and everything that must survive it is pinned: the inputs of the
// running op hard, and every input of a waiting frame softly, evicted or not. The target of a frame
// is an input of the previous frame, so the records of its op and of all that it needs stay alive.
#include "csrc/engine/replay/replay.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "csrc/engine/tier/async_copies.h"

namespace recoup::detail {
namespace {

// Keeps the inputs of a running kernel in place.
class AddressGuard {
 public:
  AddressGuard(Lineage& lineage, OpId op) : lineage_(lineage) {
    lineage.for_each_input(op, [this](ValueId id) { values_.push_back(id); });
    for (ValueId id : values_) {
      ++lineage_[id].fixed;
    }
  }
  ~AddressGuard() {
    for (ValueId id : values_) {
      --lineage_[id].fixed;
    }
  }
  AddressGuard(const AddressGuard&) = delete;
  AddressGuard& operator=(const AddressGuard&) = delete;

 private:
  Lineage& lineage_;
  std::vector<ValueId> values_;
};

}  // namespace

Replay::Replay(const Parts& parts, std::vector<ValueId>& dead_sources, Order order,
               Nanoseconds most)
    : context_(parts.context),
      lineage_(parts.context.lineage),
      values_(parts.values),
      room_(parts.room),
      evictor_(parts.evictor),
      verifier_(parts.verifier),
      disturber_(parts.disturber),
      handover_(parts.handover),
      attempts_(parts.attempts),
      reporter_(parts.reporter),
      order_(order),
      most_(most),
      dead_sources_(dead_sources) {
  RECOUP_CHECK(!context_.replaying);
  room_.set_replay(this);
}

Replay::~Replay() {
  while (!frames_.empty()) {
    pop();
  }
  room_.set_replay(nullptr);
}

void Replay::run(std::span<const ValueId> values) {
  push(OpId(), ValueId(), values);
  for (;;) {
    Frame& frame = frames_.back();
    if (frame.next < frame.inputs.size()) {
      secure(frame);
    } else if (frames_.size() > 1) {
      run_top();
    } else {
      break;
    }
  }
  frames_.back().inputs.clear();  // the caller owns the hard pins now
}

void Replay::push(OpId op, ValueId target, std::span<const ValueId> values) {
  Frame frame{.op = op, .target = target, .inputs = {}, .next = 0};
  frame.inputs.reserve(values.size());
  const bool by_room = order_ == Order::kHeaviestFirst;
  const bool softly = order_ != Order::kPinned;
  for (ValueId id : values) {
    Input input{.value = id, .key = Bytes(0)};
    const Value& value = lineage_[id];
    input.evicted = !value.resident();
    RECOUP_CHECK(value.has_content() || value.evicted(), "value ", id.index(),
                 " is lost but needed");
    if (value.evicted() && (by_room || context_.schedule != nullptr)) {  // drop_passed needs rooms_
      input.key = room_of(value.producer) - value.size;
    }
    frame.inputs.push_back(input);
  }
  if (by_room) {
    std::stable_sort(frame.inputs.begin(), frame.inputs.end(), [](const Input& a, const Input& b) {
      return a.evicted != b.evicted ? a.evicted : a.key > b.key;
    });
  }
  for (Input& input : frame.inputs) {
    if (softly || input.evicted) {
      values_.soft_pin(input.value);
      input.soft = true;
    } else {
      values_.hard_pin(input.value);
      input.secured = true;
    }
  }
  frames_.push_back(std::move(frame));
  context_.stats.replay_depth_max =
      std::max(context_.stats.replay_depth_max, static_cast<std::int64_t>(frames_.size()) - 1);
}

void Replay::secure(Frame& frame) {
  Input& input = frame.inputs[frame.next];
  if (!input.secured) {
    const Value& value = lineage_[input.value];
    if (value.spilled()) {
      fetch(input.value);
    }
    if (value.evicted()) {
      std::vector<ValueId> needs;
      lineage_.for_each_input(value.producer, [&](ValueId id) { needs.push_back(id); });
      push(value.producer, input.value, needs);  // invalidates frame and input
      return;
    }
    values_.hard_pin(input.value);
    input.secured = true;
  }
  if (input.soft) {
    values_.soft_unpin(input.value);
    input.soft = false;
  }
  ++frame.next;
}

// If the copy cannot be read, a recomputable value is evicted instead, and then replayed.
void Replay::fetch(ValueId id) {
  if (context_.copies->contains(id)) {
    context_.copies->wait(id);
    if (lineage_[id].resident()) {
      return;
    }
  }
  const BlockId block = room_.take_block(lineage_[id].nbytes);
  try {
    context_.copies->read(id, block);
  } catch (...) {
    values_.free_kernel_block(block);
    if (!lineage_[id].recomputable()) {
      throw;
    }
    ++context_.stats.unread_copies;
    values_.transition(id, Residency::kEvicted);
  }
}

void Replay::run_top() {
  const OpId op = frames_.back().op;
  execute(op);
  const ValueId target = frames_.back().target;
  RECOUP_CHECK(lineage_[target].resident());
  Frame& parent = frames_[frames_.size() - 2];
  RECOUP_CHECK(parent.inputs[parent.next].value == target);
  secure(parent);
  pop();
  values_.drain();
}

void Replay::pop() {
  Frame& frame = frames_.back();
  for (Input& input : frame.inputs) {
    if (input.soft) {
      values_.soft_unpin(input.value);
    }
  }
  const std::vector<Input> inputs = std::move(frame.inputs);
  frames_.pop_back();
  for (const Input& input : inputs) {
    if (input.secured) {
      values_.hard_unpin(input.value);
      drop_passed(input);
    } else if (input.soft) {
      values_.collect(input.value);
    }
  }
}

// Evicts a value that the schedule does not keep, as soon as no op of this replay reads it any
// more.
void Replay::drop_passed(const Input& input) {
  if (!input.evicted || context_.schedule == nullptr || !lineage_.contains(input.value) ||
      !lineage_[input.value].recomputable()) {
    return;
  }
  const ValueTicket ticket = values_.ticket(input.value);
  if (context_.schedule->keeps(ticket)) {
    return;
  }
  bool waited_for = false;
  lineage_.for_each_consumer(input.value, [&](OpId op) {
    lineage_.for_each_output(op, [&](ValueId output) {
      waited_for |= rooms_.contains(op) && lineage_[output].evicted();
    });
  });
  if (!waited_for && Candidates::is_one(lineage_[input.value])) {
    evictor_.evict_on_request(input.value);
  }
}

// Whether the op may overwrite the block of the old version: its content is not needed otherwise.
bool Replay::may_hand_over(OpId op, ValueId before) const {
  const Value& value = lineage_[before];
  return context_.options.in_place == InPlace::kShare && value.recomputable() &&
         !value.storage.valid() && value.external == nullptr && value.hard_pins == 1 &&
         value.soft_pins == 0 && value.demand <= (lineage_[op].demanding ? 1 : 0);
}

void Replay::execute(OpId op) {
  charge_cost(op);
  execute_in_budget(op);
  lineage_.for_each_input(op, [this](ValueId id) {
    const Value& value = lineage_[id];
    if (!value.recomputable() && !value.storage.valid()) {
      dead_sources_.push_back(id);
    }
  });
  ++context_.stats.replays;
  context_.stats.replay_cost_ns += lineage_[op].cost.count();
  if (context_.observer != nullptr) {
    const Op& record = lineage_[op];
    context_.observer->on_replay(context_.device.name(record.payload), op, record);
  }
  context_.now += lineage_[op].cost.count();
}

// The following allocations are for this op.
void Replay::place(OpId op) {
  Bytes made{0};
  for (ValueId output : lineage_[op].outputs) {
    made += output.valid() ? lineage_[output].size : Bytes(0);
  }
  context_.placer.begin_replay(lineage_[op].cost, made);
}

void Replay::charge_cost(OpId op) {
  spent_ += lineage_[op].cost;
  if (spent_ > most_) {
    reporter_.fail(Bytes(0), "recomputing its arguments costs more than this attempt allows");
  }
  const double ratio = context_.options.max_replay_ratio;
  const double limit = ratio * static_cast<double>(lineage_.total_cost().count());
  if (limit > 0 && static_cast<double>(spent_.count()) > limit) {
    reporter_.fail(Bytes(0), str_cat("recomputing its arguments costs more than ", ratio,
                                     " times all recorded ops (max_replay_ratio)"));
  }
}

// Provides the blocks that stand for what the op writes, with the content from before the op.
void Replay::fill_buffers(OpId op, std::vector<Buffer>& buffers) {
  const std::size_t count = lineage_[op].written.size();
  for (std::size_t i = 0; i < count; ++i) {
    const WrittenValue written = lineage_[op].written[i];
    if (written.before.valid() && may_hand_over(op, written.before)) {
      lineage_[written.before].writing = true;
      buffers.push_back({.block = lineage_[written.before].block, .from = written.before});
      continue;
    }
    buffers.push_back({.block = room_.take_block(written.nbytes), .from = {}});
    if (written.before.valid()) {
      context_.device.copy(context_.pool.offset(buffers.back().block),
                           values_.location(written.before), written.nbytes);
    }
  }
}

// A kernel that ran out of memory can run again if it has written nothing yet. That is certain only
// if it writes nothing but its results.
class Replay::ReplayedKernel final : public OpKernel {
 public:
  ReplayedKernel(Replay& replay, OpId op) : replay_(replay), op_(op) {}

  std::optional<OutOfBudgetReport> run(const Attempt& /*attempt*/) override {
    try {
      replay_.execute_once(op_);
      return std::nullopt;
    } catch (const OutOfBudget& error) {
      return error.report();
    }
  }
  [[nodiscard]] KernelLimits limits() const override {
    const auto& writes = replay_.lineage_[op_].written;
    return {.may_overflow = false,
            .once = std::any_of(writes.begin(), writes.end(), [](const WrittenValue& written) {
              return written.before.valid();
            })};
  }
  bool prepare(const Attempt& /*next*/, const std::function<bool()>& measure) override {
    return measure();
  }
  [[nodiscard]] std::vector<ValueId> movable() const override { return {}; }
  [[nodiscard]] std::vector<ValueId> overwritable() override {
    std::vector<ValueId> found;
    std::size_t index = 0;
    const void* const payload = replay_.lineage_[op_].payload;
    replay_.lineage_.for_each_input(op_, [&](ValueId id) {
      if (replay_.context_.device.may_overwrite(payload, index++)) {
        found.push_back(id);
      }
    });
    return found;
  }

 private:
  Replay& replay_;
  const OpId op_;
};

void Replay::execute_in_budget(OpId op) {
  ReplayedKernel kernel(*this, op);
  try {
    if (std::optional<OutOfBudgetReport> failure = attempts_.run(kernel)) {
      throw OutOfBudget(std::move(*failure));
    }
  } catch (...) {
    handover_.end();
    drop_handed_over(op);
    throw;
  }
  handover_.end_well();
}

// A block that was handed to a failed kernel may be half written: its value must be replayed.
void Replay::drop_handed_over(OpId op) {
  for (const WrittenValue& written : lineage_[op].written) {
    if (written.before.valid() && lineage_[written.before].writing) {
      values_.transition(written.before, Residency::kEvicted);
    }
  }
}

void Replay::execute_once(OpId op) {
  std::vector<Buffer> buffers;
  std::vector<BlockId> fresh(lineage_[op].outputs.size());
  place(op);
  try {
    fill_buffers(op, buffers);
    const AddressGuard fixed(lineage_, op);
    std::vector<Location> inputs;
    lineage_.for_each_input(op, [&](ValueId id) {
      if (id == handover_.value()) {
        inputs.push_back({.external = nullptr, .offset = handover_.offset()});
        return;
      }
      values_.used(id);
      inputs.push_back(values_.location(id));
    });
    std::vector<PoolOffset> written;
    for (const Buffer& buffer : buffers) {
      written.push_back(context_.pool.offset(buffer.block));
    }
    disturber_.before_replay(op);
    const Nanoseconds room_before = context_.room_time;
    Measurement measured = context_.device.replay(lineage_[op].payload, inputs, written, fresh);
    measured.took -= std::min(measured.took, context_.room_time - room_before);
    learn_cost(measured);
    handover_.require_among(fresh, reporter_);
  } catch (...) {
    for (const Buffer& buffer : buffers) {
      if (!buffer.from.valid()) {
        values_.free_kernel_block(buffer.block);
      }
    }
    throw;
  }
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    const ValueId after = lineage_[op].written[i].after;
    if (buffers[i].from.valid()) {
      values_.hand_over(buffers[i].from, after);
    } else {
      values_.give_block(after, buffers[i].block);
    }
  }
  put_back(op, fresh);
}

// The measurement counts for later ops of this kind. The cost of this op stays as recorded, because
// it is part of the sums of other values.
void Replay::learn_cost(const Measurement& measured) {
  if (measured.key != 0 && context_.options.cost_model == CostModel::kMeasured) {
    context_.learn(measured.key, measured.took);
  }
}

void Replay::put_back(OpId op, std::span<const BlockId> fresh) {
  for (std::size_t i = 0; i < fresh.size(); ++i) {
    if (fresh[i].valid()) {
      values_.give_block(lineage_[op].outputs[i], fresh[i]);
    }
  }
  lineage_.for_each_output(op, [&](ValueId id) {
    if (lineage_[id].resident()) {
      verifier_.compare(id, values_.location(id), op);
    }
  });
}

ValueId Replay::soft_victim() const {
  for (const Frame& frame : frames_) {
    ValueId best;
    for (const Input& input : frame.inputs) {
      const Value& value = lineage_[input.value];
      if (input.soft && value.evictable() && (!best.valid() || value.size > lineage_[best].size)) {
        best = input.value;
      }
    }
    if (best.valid()) {
      return best;
    }
  }
  return {};
}

Bytes Replay::room_of(OpId root) {
  if (const auto found = rooms_.find(root); found != rooms_.end()) {
    return found->second;
  }
  // Evicted ancestors in program order, so that inputs come first.
  std::vector<OpId> closure{root};
  rooms_.emplace(root, Bytes(0));
  for (std::size_t i = 0; i < closure.size(); ++i) {
    lineage_.for_each_input(closure[i], [&](ValueId id) {
      const Value& value = lineage_[id];
      if (value.evicted() && rooms_.emplace(value.producer, Bytes(0)).second) {
        closure.push_back(value.producer);
      }
    });
  }
  std::sort(closure.begin(), closure.end(),
            [this](OpId a, OpId b) { return lineage_[a].sequence < lineage_[b].sequence; });
  for (OpId op : closure) {
    rooms_[op] = room_of_one(op);
  }
  return rooms_[root];
}

Bytes Replay::room_of_one(OpId op) const {
  Bytes all = lineage_[op].workspace;
  std::vector<std::pair<Bytes, Bytes>> evicted;  // (room - size, size)
  lineage_.for_each_input(op, [&](ValueId id) {
    const Value& value = lineage_[id];
    all += value.size;
    if (value.evicted()) {
      const auto found = rooms_.find(value.producer);
      const Bytes room = found == rooms_.end() ? value.size : found->second;
      evicted.emplace_back(room - value.size, value.size);
    }
  });
  lineage_.for_each_output(op, [&](ValueId id) { all += lineage_[id].size; });
  std::sort(evicted.rbegin(), evicted.rend());
  Bytes held{0};
  Bytes most = all;
  for (const auto& [excess, size] : evicted) {
    most = std::max(most, held + excess + size);
    held += size;
  }
  return most;
}

}  // namespace recoup::detail
