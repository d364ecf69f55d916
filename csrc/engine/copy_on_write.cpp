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
    count_enough(value.size);
    const BlockId fresh = take_block(value.size);
    storages_[id].before_write = relocate(id, fresh);
    if (!storages_[id].before_write.valid()) {
      values_.return_block(fresh);
    }
  }
}

// Copies a storage to a block that nobody owns and gives it that. Returns the one from before,
// which is nobody's then; invalid, and nothing done, when the storage refuses.
BlockId Engine::relocate(StorageId id, BlockId to) {
  Value& value = lineage_[current(id)];
  const PoolOffset from = offset(value.block);
  if (!device_.detach(handle(id), from)) {
    return {};
  }
  device_.copy(offset(to), {.external = nullptr, .offset = from}, value.size);
  device_.attach(handle(id), offset(to));
  const BlockId before = std::exchange(value.block, to);
  pool_.set_owner(before, 0);
  pool_.set_owner(to, current(id).index() + 1);
  return before;
}

void Engine::discard_copies(std::span<const StorageId> storages) noexcept {
  for (StorageId id : storages) {
    discard_copy(storages_[id]);
  }
}

void Engine::discard_copy(HeldStorage& storage) noexcept {
  if (storage.before_write.valid()) {
    values_.return_block(std::exchange(storage.before_write, BlockId()));
  }
}

}  // namespace recoup::detail
