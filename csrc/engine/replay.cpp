// Note [What may happen during a replay]
// Device::replay gives up the engine's lock while a kernel runs. Other threads may then free
// blocks, allocate (and so evict what is not pinned) and let storages die. So nothing here keeps a
// reference to a record across that call, and whatever must survive it is pinned: the inputs of the
// running op hard, and every input of a waiting frame softly, evicted or not: the target of a frame
// is an input of the one below it, so the records of its op and of all that it needs live on.
#include "csrc/engine/replay.h"

#include <algorithm>

namespace recoup::detail {
namespace {

// The inputs of a running kernel may not move.
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

Replayer::Replayer(Engine& engine, std::vector<ValueId>& dead_leaves, Order order)
    : engine_(engine), order_(order), dead_leaves_(dead_leaves) {
  RECOUP_CHECK(engine.replayer_ == nullptr);
  engine.replayer_ = this;
}

Replayer::~Replayer() {
  while (!frames_.empty()) {
    pop();
  }
  engine_.replayer_ = nullptr;
}

void Replayer::run(std::span<const ValueId> values) {
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
  frames_.back().inputs.clear();  // the hard pins are the caller's now
}

void Replayer::push(OpId op, ValueId target, std::span<const ValueId> values) {
  Frame frame{.op = op, .target = target, .inputs = {}, .next = 0};
  frame.inputs.reserve(values.size());
  const bool by_room = order_ == Order::kHeaviestFirst;
  const bool softly = order_ != Order::kPinned;
  for (ValueId id : values) {
    Input input{.value = id, .key = Bytes(0)};
    const Value& value = engine_.lineage_[id];
    input.evicted = !value.resident();
    RECOUP_CHECK(!input.evicted || value.evicted(), "value ", id.index(), " is lost but needed");
    if (input.evicted && (by_room || engine_.conductor_ != nullptr)) {  // drop_passed asks too
      input.key = room(value.producer) - value.size;
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
      engine_.values_.soft_pin(input.value);
      input.soft = true;
    } else {
      engine_.values_.hard_pin(input.value);
      input.secured = true;
    }
  }
  frames_.push_back(std::move(frame));
  engine_.stats_.replay_depth_max =
      std::max(engine_.stats_.replay_depth_max, static_cast<std::int64_t>(frames_.size()) - 1);
}

void Replayer::secure(Frame& frame) {
  Input& input = frame.inputs[frame.next];
  if (!input.secured) {
    const Value& value = engine_.lineage_[input.value];
    if (!value.resident()) {
      std::vector<ValueId> needs;
      engine_.lineage_.for_each_input(value.producer, [&](ValueId id) { needs.push_back(id); });
      push(value.producer, input.value, needs);  // invalidates frame and input
      return;
    }
    engine_.values_.hard_pin(input.value);
    input.secured = true;
  }
  if (input.soft) {
    engine_.values_.soft_unpin(input.value);
    input.soft = false;
  }
  ++frame.next;
}

void Replayer::run_top() {
  const OpId op = frames_.back().op;
  execute(op);
  const ValueId target = frames_.back().target;
  RECOUP_CHECK(engine_.lineage_[target].resident());
  Frame& parent = frames_[frames_.size() - 2];
  RECOUP_CHECK(parent.inputs[parent.next].value == target);
  secure(parent);
  pop();
  engine_.values_.drain();
}

void Replayer::pop() {
  Frame& frame = frames_.back();
  for (Input& input : frame.inputs) {
    if (input.soft) {
      engine_.values_.soft_unpin(input.value);
    }
  }
  const std::vector<Input> inputs = std::move(frame.inputs);
  frames_.pop_back();
  for (const Input& input : inputs) {
    if (input.secured) {
      engine_.values_.hard_unpin(input.value);
      drop_passed(input);
    } else if (input.soft) {
      engine_.values_.settle(input.value);
    }
  }
}

// What a schedule does not keep goes as soon as no op of this replay reads it any more.
void Replayer::drop_passed(const Input& input) {
  if (!input.evicted || engine_.conductor_ == nullptr || !engine_.lineage_.contains(input.value)) {
    return;
  }
  const ValueTicket ticket = engine_.ticket(input.value);
  if (engine_.conductor_->keeps(ticket)) {
    return;
  }
  bool waited_for = false;
  engine_.lineage_.for_each_consumer(input.value, [&](OpId op) {
    engine_.lineage_.for_each_output(op, [&](ValueId output) {
      waited_for |= rooms_.contains(op) && engine_.lineage_[output].evicted();
    });
  });
  if (!waited_for) {
    engine_.drop(ticket);
  }
}

// The old version's buffer may be given to the op that writes it when nobody else wants what is in
// it.
bool Replayer::may_hand_over(OpId op, ValueId before) const {
  const Value& value = engine_.lineage_[before];
  return engine_.options_.in_place == InPlace::kShare && !value.leaf() && !value.storage.valid() &&
         value.external == nullptr && value.hard_pins == 1 && value.soft_pins == 0 &&
         value.demand <= (engine_.lineage_[op].demanding ? 1 : 0);
}

void Replayer::execute(OpId op) {
  charge_cost(op);
  execute_until_it_fits(op);
  engine_.lineage_.for_each_input(op, [this](ValueId id) {
    const Value& value = engine_.lineage_[id];
    if (value.leaf() && !value.storage.valid()) {
      dead_leaves_.push_back(id);
    }
  });
  ++engine_.stats_.replays;
  engine_.stats_.replay_cost_ns += engine_.lineage_[op].cost.count();
  if (engine_.observer_ != nullptr) {
    const Op& record = engine_.lineage_[op];
    engine_.observer_->on_replay(engine_.device_.name(record.payload), record.sequence,
                                 record.cost);
  }
  engine_.now_ += engine_.lineage_[op].cost.count();
}

void Replayer::charge_cost(OpId op) {
  spent_ += engine_.lineage_[op].cost;
  const double ratio = engine_.options_.max_replay_ratio;
  const double limit = ratio * static_cast<double>(engine_.lineage_.total_cost().count());
  if (limit > 0 && static_cast<double>(spent_.count()) > limit) {
    engine_.throw_out_of_budget(Bytes(0), str_cat("getting its arguments back costs more than ",
                                                  ratio, " times all ops on record"));
  }
}

// The blocks that stand for what the op writes, holding the content from before.
void Replayer::fill_buffers(OpId op, std::vector<Buffer>& buffers) {
  const std::size_t count = engine_.lineage_[op].written.size();
  for (std::size_t i = 0; i < count; ++i) {
    const WrittenValue written = engine_.lineage_[op].written[i];
    if (written.before.valid() && may_hand_over(op, written.before)) {
      engine_.lineage_[written.before].writing = true;
      buffers.push_back({.block = engine_.lineage_[written.before].block, .from = written.before});
      continue;
    }
    buffers.push_back({.block = engine_.take_block(written.nbytes), .from = {}});
    if (written.before.valid()) {
      engine_.device_.copy(engine_.offset(buffers.back().block),
                           engine_.values_.location(written.before), written.nbytes);
    }
  }
}

// A kernel that ran out of memory can be tried again if it has written nothing yet, which is known
// of one that writes nothing but what it makes.
void Replayer::execute_until_it_fits(OpId op) {
  Retry retry;
  const auto& writes = engine_.lineage_[op].written;
  retry.all_tried = std::any_of(writes.begin(), writes.end(),
                                [](const WrittenValue& written) { return written.before.valid(); });
  for (;;) {
    try {
      execute_once(op);
      return;
    } catch (const OutOfBudget& error) {
      if (!retry.worth_it(error.report())) {
        drop_handed_over(op);
        throw;
      }
    } catch (...) {
      drop_handed_over(op);
      throw;
    }
    retry.all_tried = !engine_.defragment({}, retry.need);
  }
}

// What was handed to a kernel that failed may be half written: it has to be made again.
void Replayer::drop_handed_over(OpId op) {
  for (const WrittenValue& written : engine_.lineage_[op].written) {
    if (written.before.valid() && engine_.lineage_[written.before].writing) {
      engine_.values_.transition(written.before, Residency::kEvicted);
    }
  }
}

void Replayer::execute_once(OpId op) {
  std::vector<Buffer> buffers;
  std::vector<BlockId> fresh(engine_.lineage_[op].outputs.size());
  engine_.place_replay(op);
  try {
    fill_buffers(op, buffers);
    const AddressGuard fixed(engine_.lineage_, op);
    std::vector<Location> inputs;
    engine_.lineage_.for_each_input(
        op, [&](ValueId id) { inputs.push_back(engine_.values_.location(id)); });
    std::vector<PoolOffset> written;
    for (const Buffer& buffer : buffers) {
      written.push_back(engine_.offset(buffer.block));
    }
    engine_.disturb_replay(op);
    engine_.device_.replay(engine_.lineage_[op].payload, inputs, written, fresh);
  } catch (...) {
    for (const Buffer& buffer : buffers) {
      if (!buffer.from.valid()) {
        engine_.values_.return_block(buffer.block);
      }
    }
    throw;
  }
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    const ValueId after = engine_.lineage_[op].written[i].after;
    if (buffers[i].from.valid()) {
      engine_.values_.hand_over(buffers[i].from, after);
    } else {
      engine_.values_.give_back(after, buffers[i].block);
    }
  }
  put_back(op, fresh);
}

void Replayer::put_back(OpId op, std::span<const BlockId> fresh) {
  for (std::size_t i = 0; i < fresh.size(); ++i) {
    if (fresh[i].valid()) {
      engine_.values_.give_back(engine_.lineage_[op].outputs[i], fresh[i]);
    }
  }
  engine_.lineage_.for_each_output(op, [&](ValueId id) {
    if (engine_.lineage_[id].resident()) {
      engine_.verifier_.compare(id, engine_.values_.location(id), op);
    }
  });
}

ValueId Replayer::soft_victim() const {
  for (const Frame& frame : frames_) {
    ValueId best;
    for (const Input& input : frame.inputs) {
      const Value& value = engine_.lineage_[input.value];
      if (input.soft && value.evictable() &&
          (!best.valid() || value.size > engine_.lineage_[best].size)) {
        best = input.value;
      }
    }
    if (best.valid()) {
      return best;
    }
  }
  return {};
}

Bytes Replayer::room(OpId root) {
  if (const auto found = rooms_.find(root); found != rooms_.end()) {
    return found->second;
  }
  // Evicted ancestors in the order in which the program ran them, so that inputs come first.
  std::vector<OpId> closure{root};
  rooms_.emplace(root, Bytes(0));
  for (std::size_t i = 0; i < closure.size(); ++i) {
    engine_.lineage_.for_each_input(closure[i], [&](ValueId id) {
      const Value& value = engine_.lineage_[id];
      if (value.evicted() && rooms_.emplace(value.producer, Bytes(0)).second) {
        closure.push_back(value.producer);
      }
    });
  }
  std::sort(closure.begin(), closure.end(), [this](OpId a, OpId b) {
    return engine_.lineage_[a].sequence < engine_.lineage_[b].sequence;
  });
  for (OpId op : closure) {
    rooms_[op] = room_of_one(op);
  }
  return rooms_[root];
}

Bytes Replayer::room_of_one(OpId op) const {
  Bytes all = engine_.lineage_[op].workspace;
  std::vector<std::pair<Bytes, Bytes>> evicted;  // room - size, size
  engine_.lineage_.for_each_input(op, [&](ValueId id) {
    const Value& value = engine_.lineage_[id];
    all += value.size;
    if (value.evicted()) {
      const auto found = rooms_.find(value.producer);
      const Bytes room = found == rooms_.end() ? value.size : found->second;
      evicted.emplace_back(room - value.size, value.size);
    }
  });
  engine_.lineage_.for_each_output(op, [&](ValueId id) { all += engine_.lineage_[id].size; });
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
