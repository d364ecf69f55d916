#include "csrc/torch/storages.h"

#include <utility>
#include <vector>

#include "csrc/base/check.h"
#include "csrc/torch/errors.h"
#include "csrc/torch/gpus.h"
#include "csrc/torch/storage_access.h"

namespace recoup::detail {
namespace {

c10::DataPtr& data_of(const c10::StorageImpl& storage) {
  return const_cast<c10::StorageImpl&>(storage)._mutable_data_ptr_no_checks();
}

Bytes size_of(const c10::StorageImpl& storage) {
  return Bytes(static_cast<std::int64_t>(storage.nbytes()));
}

}  // namespace

void Storages::died(StorageRecord& record) {
  engine_.storage_died(record.id);
  records_.remove(record);
}

void Storages::rebind(StorageRecord& record, c10::StorageImpl& storage) {
  record.weak = c10::weak_intrusive_ptr<c10::StorageImpl>(StoragePtr::reclaim_copy(&storage));
  record.impl = &storage;
}

BlockId Storages::unowned_block(const c10::StorageImpl& storage) const {
  const c10::DataPtr& data = data_of(storage);
  if (!device_.in_pool(data)) {
    return {};
  }
  const auto block = engine_.pool().find(device_.arena().offset(data.get()));
  return block && !engine_.pool().owner(*block).valid() ? *block : BlockId();
}

StorageId Storages::find(c10::StorageImpl& storage) {
  const c10::DataPtr& data = data_of(storage);
  if (device_.is_evicted(data)) {
    StorageRecord& record = records_[EvictedContext::unpack(data.get_context()).record];
    if (record.impl != &storage) {
      rebind(record, storage);  // its DataPtr was swapped into another storage
    }
    return record.id;
  }
  if (data.get() == nullptr) {
    return {};
  }
  return device_.in_pool(data) ? find_pooled(storage) : find_external(storage);
}

void Storages::offer(c10::StorageImpl& storage) {
  if (device_.brings_in()) {
    offered_.insert_or_assign(
        &storage, c10::weak_intrusive_ptr<c10::StorageImpl>(StoragePtr::reclaim_copy(&storage)));
    arm(storage);  // no op has seen it yet
  }
}

void Storages::withdraw_all() {
  if (!device_.brings_in()) {
    return;
  }
  offered_.clear();
  records_.for_each_external([this](const StorageRecord& record) {
    if (record.id.valid()) {
      (void)engine_.user().pin(record.id);
    }
  });
}

StorageId Storages::find_known(const c10::StorageImpl& storage) {
  const c10::DataPtr& data = data_of(storage);
  if (device_.is_evicted(data)) {
    return records_[EvictedContext::unpack(data.get_context()).record].id;
  }
  if (device_.in_pool(data)) {
    const auto block = engine_.pool().find(device_.arena().offset(data.get()));
    return block ? engine_.storage_in(*block) : StorageId();
  }
  StorageRecord* const record = records_.external(&storage);
  return record == nullptr ? StorageId() : id_of(*record);
}

// Note [Let go, and found again]
// That nobody but us holds an external storage does not mean that nobody will: weak references (of
// torch.multiprocessing's cache, for one) find what lineage keeps. Then it is the program's again,
// under a new id, with all that depends on its content.
StorageId Storages::id_of(StorageRecord& external) {
  if (!external.id.valid()) {
    external.id = engine_.revive_external(std::exchange(external.let_go, ValueId()));
  }
  return external.id;
}

StorageId Storages::charge_external(StorageRecord& record, Bytes size, Engine::Charge charge) {
  try {
    record.id = engine_.add_external(&record, size, charge);
  } catch (...) {
    mutex_.graveyard().add(std::move(record.strong));
    records_.remove(record);
    throw;
  }
  return record.id;
}

StorageId Storages::reserve(Bytes size) {
  auto nothing = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), 0,
                                                       device_.no_bytes(), nullptr, false);
  StorageRecord& record = records_.add(*nothing);
  record.strong = std::move(nothing);
  return charge_external(record, size, Engine::Charge::kNow);
}

StorageId Storages::find_pooled(c10::StorageImpl& storage) {
  const auto block = engine_.pool().find(device_.arena().offset(data_of(storage).get()));
  RECOUP_CHECK(block.has_value());
  if (const StorageId id = engine_.storage_in(*block); id.valid()) {
    if (StorageRecord& known = record(id); known.impl != &storage) {
      rebind(known, storage);
    }
    return id;
  }
  // Allocated by something that was no op of ours (torch.tensor writes its bytes itself): a leaf.
  StorageRecord& added = records_.add(storage);
  added.id = engine_.adopt({.block = *block, .nbytes = size_of(storage), .handle = &added});
  return added.id;
}

StorageId Storages::find_external(c10::StorageImpl& storage) {
  const void* const data = data_of(storage).get();
  if (StorageRecord* const known = records_.external(&storage)) {
    const StorageId id = id_of(*known);
    if (known->data == data) {
      return id;
    }
    // resize_ or set_ behind our back: what we knew is gone, and nothing was evicted because of it.
    records_.unindex_external(*known);
    engine_.forsake_external(id);
  }
  device_.hooks().met(&storage);
  const c10::DeleterFnPtr deleter = data_of(storage).get_deleter();
  // Not ours, nor from an earlier scope.
  const bool foreign = deleter != device_.hooks().program && deleter != device_.hooks().pool;
  StorageRecord& added = records_.add(storage);
  added.strong = StoragePtr::reclaim_copy(&storage);
  added.data = data;
  // Memory inside the arena that somebody wrapped (copy-on-write) is charged already.
  const Bytes size = device_.owns(data) ? Bytes(0) : size_of(storage);
  const bool counted = device_.gpu() != nullptr && gpu_allocator().owns(data);
  charge_external(added, size, counted ? Engine::Charge::kAmongOutside : Engine::Charge::kNow);
  records_.index_external(added);
  if (foreign) {
    engine_.user().escape(added.id);
  } else if (device_.brings_in() && !offered_.contains(&storage)) {
    (void)engine_.user().pin(added.id);  // somebody may hold its address
  }
  return added.id;
}

// Null when it has bytes, or is dying. One that Python has an object of has bytes: to lock it here
// could wait for the interpreter, whose holder may wait for us.
StoragePtr Storages::lock_evicted(const StorageRecord& record) const {
  return device_.is_evicted(data_of(*record.impl)) ? record.weak.lock() : StoragePtr();
}

void Storages::tell_evicted(const std::string& message) {
  device_.set_evicted_message(message);
  records_.for_each([&](const StorageRecord& record) {
    if (StoragePtr storage = lock_evicted(record)) {
      storage->release_data_and_set_meta_custom_data_ptr_error_msg_(message);
      mutex_.graveyard().add(std::move(storage));
    }
  });
}

void Storages::disown_evicted() {
  records_.for_each([this](const StorageRecord& record) {
    if (StoragePtr storage = lock_evicted(record)) {
      data_of(*storage).release_context();
      storage->set_data_ptr_noswap(device_.no_bytes());
      storage->release_data_and_set_meta_custom_data_ptr_error_msg_(lost_message());
      mutex_.graveyard().add(std::move(storage));
    }
  });
}

// Note [Unseen writers]
// A C extension that takes tensor.data_ptr() writes where no op shows it, and what was made from
// the storage would be recomputed from the new content. So every storage that an op has read or
// made carries a materializer, a hook of StorageImpl that fires once, on the first mutable access
// outside the ops that we see. Around our kernels it is off: kernels take mutable pointers all the
// time, some of them from several threads. What `empty` makes is filled by pointer in the usual
// case, so that is no reason to distrust it ever after; but whoever filled it may come back to the
// pointer (DDP's reducer does), so it stays where it is.
void Storages::arm_with(c10::StorageImpl& storage, AccessHook hook) const {
  const c10::DeleterFnPtr deleter = data_of(storage).get_deleter();
  const StorageHooks& hooks = device_.hooks();
  if ((deleter == hooks.pool || deleter == hooks.program) && !has_access_hook(storage)) {
    set_access_hook(storage, hook);
  }
}

void Storages::disarm(c10::StorageImpl& storage) const {
  if (!has_access_hook(storage)) {
    return;
  }
  const c10::DeleterFnPtr deleter = data_of(storage).get_deleter();
  const StorageHooks& hooks = device_.hooks();
  if (deleter == hooks.pool || deleter == hooks.evicted || deleter == hooks.program) {
    clear_access_hook(storage);
  }
}

}  // namespace recoup::detail
