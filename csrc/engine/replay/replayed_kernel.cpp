#include "csrc/engine/replay/replayed_kernel.h"

#include <algorithm>
#include <utility>

#include "csrc/base/at_end.h"
#include "csrc/base/check.h"

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

ReplayedKernel::ReplayedKernel(const Parts& parts, OpId op)
    : parts_(parts),
      context_(parts.context),
      lineage_(parts.context.lineage),
      values_(parts.values),
      handover_(parts.handover),
      op_(op) {}

void ReplayedKernel::run_in_budget() {
  AtEnd failed([this] {
    handover_.end();
    drop_handed_over();
  });
  if (std::optional<OutOfBudgetReport> failure = parts_.attempts.run(*this)) {
    throw OutOfBudget(std::move(*failure));
  }
  failed.cancel();
  handover_.end_well();
}

// A block that was handed to a failed kernel may be half written: its value must be replayed. If
// the failure came later, the block already belongs to the value that the op has made.
void ReplayedKernel::drop_handed_over() {
  for (const WrittenValue& written : op().written) {
    if (!written.before.valid()) {
      continue;
    }
    const Value& before = lineage_[written.before];
    if (before.writing && before.resident()) {
      values_.transition(written.before, Residency::kEvicted);
    }
  }
}

std::optional<OutOfBudgetReport> ReplayedKernel::run(const Attempt& /*attempt*/) {
  try {
    run_once();
    return std::nullopt;
  } catch (const OutOfBudget& error) {
    return error.report();
  }
}

KernelLimits ReplayedKernel::limits() const {
  return {.may_overflow = false,
          .once = std::any_of(op().written.begin(), op().written.end(),
                              [](const WrittenValue& written) { return written.before.valid(); })};
}

std::vector<ValueId> ReplayedKernel::overwritable() {
  std::vector<ValueId> found;
  std::size_t index = 0;
  const void* const payload = op().payload;
  lineage_.for_each_input(op_, [&](ValueId id) {
    if (context_.device.may_overwrite(payload, index++)) {
      found.push_back(id);
    }
  });
  return found;
}

void ReplayedKernel::run_once() {
  place();
  std::vector<Buffer> buffers = fill_buffers();
  std::vector<Values::KernelBlock> results = run_kernel(buffers);
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    const ValueId after = op().written[i].after;
    if (buffers[i].from.valid()) {
      values_.hand_over(buffers[i].from, after);
    } else {
      values_.give_block(after, std::move(buffers[i].fresh));
    }
  }
  put_back(results);
}

// The following allocations are for this op.
void ReplayedKernel::place() {
  Bytes made{0};
  for (ValueId output : op().outputs) {
    made += output.valid() ? lineage_[output].size : Bytes(0);
  }
  context_.placer.begin_replay(op().cost, made);
}

// Provides the blocks that stand for what the op writes, with the content from before the op.
std::vector<ReplayedKernel::Buffer> ReplayedKernel::fill_buffers() {
  std::vector<Buffer> buffers;
  const std::size_t count = op().written.size();
  for (std::size_t i = 0; i < count; ++i) {
    const WrittenValue written = op().written[i];
    if (written.before.valid() && may_hand_over(written.before)) {
      lineage_[written.before].writing = true;
      buffers.push_back({.from = written.before});
      continue;
    }
    buffers.push_back({.fresh = parts_.room.take_block(written.nbytes)});
    if (written.before.valid()) {
      context_.device.copy(context_.pool.offset(buffers.back().fresh.id()),
                           values_.location(written.before), written.nbytes);
    }
  }
  return buffers;
}

// Whether the op may overwrite the block of the old version: its content is not needed otherwise.
bool ReplayedKernel::may_hand_over(ValueId before) const {
  const Value& value = lineage_[before];
  return context_.options.in_place == InPlace::kShare && value.recomputable() &&
         !value.storage.valid() && value.external == nullptr && value.hard_pins == 1 &&
         value.soft_pins == 0 && value.demand <= (op().demanding ? 1 : 0);
}

// Returns the blocks of the outputs by slot; empty ones where the op makes none.
std::vector<Values::KernelBlock> ReplayedKernel::run_kernel(std::span<const Buffer> buffers) {
  const AddressGuard fixed(lineage_, op_);
  std::vector<Location> inputs;
  lineage_.for_each_input(op_, [&](ValueId id) {
    if (id == handover_.value()) {
      inputs.push_back({.external = nullptr, .offset = handover_.offset()});
      return;
    }
    values_.used(id);
    inputs.push_back(values_.location(id));
  });
  std::vector<PoolOffset> written;
  for (const Buffer& buffer : buffers) {
    const BlockId block = buffer.from.valid() ? lineage_[buffer.from].block : buffer.fresh.id();
    written.push_back(context_.pool.offset(block));
  }
  std::vector<BlockId> fresh(op().outputs.size());
  parts_.disturber.before_replay(op_);
  const Nanoseconds room_before = context_.room_time;
  Measurement measured = context_.device.replay(op().payload, inputs, written, fresh);
  measured.took -= std::min(measured.took, context_.room_time - room_before);
  learn_cost(measured);
  std::vector<Values::KernelBlock> results;
  for (const BlockId block : fresh) {
    results.push_back(block.valid() ? Values::KernelBlock(values_, block) : Values::KernelBlock());
  }
  if (!handover_.is_among(fresh)) {
    results.clear();
    parts_.reporter.fail(Bytes(0), Handover::kNotTaken);
  }
  return results;
}

// The measurement counts for later ops of this kind. The cost of this op stays as recorded, because
// it is part of the sums of other values.
void ReplayedKernel::learn_cost(const Measurement& measured) {
  if (measured.key != 0 && context_.options.cost_model == CostModel::kMeasured) {
    context_.learn(measured.key, measured.took);
  }
}

void ReplayedKernel::put_back(std::span<Values::KernelBlock> results) {
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (results[i]) {
      values_.give_block(op().outputs[i], std::move(results[i]));
    }
  }
  lineage_.for_each_output(op_, [&](ValueId id) {
    if (lineage_[id].resident()) {
      parts_.verifier.compare(id, values_.location(id), op_);
    }
  });
}

}  // namespace recoup::detail
