#include "csrc/foresight/recorded_step.h"

#include <utility>

namespace recoup::detail {

StepRecorder::StepRecorder(const Engine& engine) : engine_(engine) {
  const Pool& pool = engine.pool();
  step_.options = engine.options();
  step_.options.move_ns_per_byte = engine.context().move_price.a_byte;
  step_.placer.learn_from(engine.context().placer);
  step_.unseen = engine.context().charges.external - step_.options.outside;
  for (BlockId id = pool.first(); id.valid(); id = pool.next(id)) {
    if (const BlockView block = pool.view(id); !block.free) {
      add_block(id, block);
    }
  }
  engine.values().for_each_storage(
      [this](StorageId id, const HeldStorage& storage) { add_storage(id, storage); });
}

// A block of a value that no storage holds stays as it is: who needs it still needs it.
void StepRecorder::add_block(BlockId id, const BlockView& block) {
  recorder_.on_allocate(id, block.size);
  step_.places.push_back(block.offset);
  if (const StorageId storage = engine_.storage_in(id); storage.valid()) {
    const Bytes nbytes = engine_.value(engine_.current(storage)).nbytes;
    recorder_.on_adopt({.block = id, .nbytes = nbytes}, storage);
  }
}

// One that is evicted takes nothing, and is not what this step evicts.
void StepRecorder::add_storage(StorageId id, const HeldStorage& storage) {
  const Value& value = engine_.value(storage.current);
  if (!value.block.valid()) {
    const bool charged = value.external != nullptr && !value.among_outside;
    step_.unseen -= charged ? value.size : Bytes(0);
    recorder_.on_external(id, charged ? value.nbytes : Bytes(0));
  }
  for (std::int32_t pin = 0; pin < storage.user_pins; ++pin) {
    recorder_.on_pin(id);
  }
  if (value.escaped) {
    recorder_.on_escape(id);
  }
}

RecordedStep StepRecorder::take() {
  step_.trace = builder_.take();
  return std::move(step_);
}

}  // namespace recoup::detail
