// Note [What may happen during a replay]
// Device::replay releases the engine's lock while a kernel runs. Other threads may then free
// blocks, allocate (and so evict unpinned values) and let storages die. So no reference to a record
// is kept across that call, and everything that must survive it is pinned: the inputs of the
// running op hard, and every input of a waiting frame softly, evicted or not. The target of a frame
// is an input of the previous frame, so the records of its op and of all that it needs stay alive.
#include "csrc/engine/replay/replay.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "csrc/engine/replay/replayed_kernel.h"
#include "csrc/engine/tier/async_copies.h"

namespace recoup::detail {
Replay::Replay(const Parts& parts, std::vector<ValueId>& dead_sources, Order order,
               Nanoseconds most)
    : parts_(parts),
      context_(parts.context),
      lineage_(parts.context.lineage),
      values_(parts.values),
      room_(parts.room),
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
  for (Input& input : frames_.back().inputs) {
    input.hard.release();  // the caller owns the pin now
  }
  frames_.back().inputs.clear();
}

void Replay::push(OpId op, ValueId target, std::span<const ValueId> values) {
  Frame frame{.op = op, .target = target, .inputs = {}, .next = 0};
  frame.inputs.reserve(values.size());
  const bool by_room = order_ == Order::kHeaviestFirst;
  const bool softly = order_ != Order::kPinned;
  for (ValueId id : values) {
    const Value& value = lineage_[id];
    Input input{.value = id, .key = Bytes(0), .evicted = !value.resident()};
    RECOUP_CHECK(value.has_content() || value.evicted(), "value ", id.index(),
                 " is lost but needed");
    if (value.evicted() && (by_room || context_.schedule != nullptr)) {  // drop_passed needs rooms_
      input.key = room_of(value.producer) - value.size;
    }
    frame.inputs.push_back(std::move(input));
  }
  if (by_room) {
    std::stable_sort(frame.inputs.begin(), frame.inputs.end(), [](const Input& a, const Input& b) {
      return a.evicted != b.evicted ? a.evicted : a.key > b.key;
    });
  }
  for (Input& input : frame.inputs) {
    if (softly || input.evicted) {
      input.soft = values_.pin_softly(input.value);
    } else {
      input.hard = values_.pin_hard(input.value);
    }
  }
  frames_.push_back(std::move(frame));
  context_.stats.replay_depth_max =
      std::max(context_.stats.replay_depth_max, static_cast<std::int64_t>(frames_.size()) - 1);
}

void Replay::secure(Frame& frame) {
  Input& input = frame.inputs[frame.next];
  if (!input.hard) {
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
    input.hard = values_.pin_hard(input.value);
  }
  input.soft.reset();
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
  Values::KernelBlock block = room_.take_block(lineage_[id].nbytes);
  try {
    context_.copies->read(id, std::move(block));
  } catch (const std::exception&) {
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
  std::vector<Input> inputs = std::move(frames_.back().inputs);
  frames_.pop_back();
  for (Input& input : inputs) {
    input.soft.reset();
  }
  for (Input& input : inputs) {
    if (input.hard) {
      input.hard.reset();
      drop_passed(input);
    } else {
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
    parts_.evictor.evict_on_request(input.value);
  }
}

void Replay::execute(OpId op) {
  charge_cost(op);
  ReplayedKernel({context_, values_, room_, parts_.verifier, parts_.disturber, parts_.handover,
                  parts_.attempts, parts_.reporter},
                 op)
      .run_in_budget();
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

void Replay::charge_cost(OpId op) {
  spent_ += lineage_[op].cost;
  if (spent_ > most_) {
    parts_.reporter.fail(Bytes(0), "recomputing its arguments costs more than this attempt allows");
  }
  const double ratio = context_.options.max_replay_ratio;
  const double limit = ratio * static_cast<double>(lineage_.total_cost().count());
  if (limit > 0 && static_cast<double>(spent_.count()) > limit) {
    parts_.reporter.fail(Bytes(0), str_cat("recomputing its arguments costs more than ", ratio,
                                           " times all recorded ops (max_replay_ratio)"));
  }
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
