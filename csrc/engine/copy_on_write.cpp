// Note [Copy on write]
// What DTR and DTE do with a write, as an ablation of recomputable in-place (Note [Versions]): the
// storage moves to a new block before the op writes it, so the op needs room for both, and what is
// written often wanders through the pool. The block from before stays for the kernel's time; then
// it belongs to the old version, which may be evicted like any other value, or is free:
//
//   before   s -- v1 [block a]
//   kernel   s -- v1 [block b, written]      [block a: what v1 was]
//   after    s -- v2 [block b]               v1 [block a], replayable; or a leaf's, which goes
//
// What is pinned, escaped or from outside the pool stays where it is.
#include "csrc/engine/engine.h"

namespace recoup::detail {

// Of an op's arguments, which are pinned once each. Throws OutOfBudget; what is copied by then
// stays so until it is written or discarded.
void Engine::copy_before_write(std::span<const StorageId> storages) {
  for (StorageId id : storages) {
    const Value& value = lineage_[current(id)];
    if (!value.block.valid() || value.escaped || value.fixed != 1) {
      continue;
    }
    const Bytes size = value.size;
    const BlockId fresh = take_block(size);
    Value& now = lineage_[current(id)];
    const PoolOffset from = offset(now.block);
    Storage& storage = storages_[id];
    if (!device_.detach(storage.handle, from)) {
      return_block(fresh);
      continue;
    }
    device_.copy(offset(fresh), {.external = nullptr, .offset = from}, size);
    device_.attach(storage.handle, offset(fresh));
    storage.before_write = std::exchange(now.block, fresh);
    pool_.set_owner(storage.before_write, 0);
    pool_.set_owner(fresh, current(id).index() + 1);
  }
}

void Engine::discard_copies(std::span<const StorageId> storages) noexcept {
  for (StorageId id : storages) {
    discard_copy(storages_[id]);
  }
}

void Engine::discard_copy(Storage& storage) noexcept {
  if (storage.before_write.valid()) {
    return_block(std::exchange(storage.before_write, BlockId()));
  }
}

// The old version of a written storage gets the bytes that it had, if it may be evicted.
void Engine::give_copy(ValueId before, BlockId block) {
  Value& value = lineage_[before];
  value.block = block;
  kernel_held_ -= value.size;
  pool_.set_owner(block, before.index() + 1);
}

}  // namespace recoup::detail
