#include "csrc/torch/storages/storages.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "csrc/base/at_end.h"
#include "csrc/base/check.h"
#include "csrc/torch/compat/errors.h"
#include "csrc/torch/compat/scope_thread.h"
#include "csrc/torch/compat/storage_access.h"
#include "csrc/torch/storages/private_memory.h"
#include "csrc/torch/storages/request.h"

namespace recoup::detail {
namespace {

Bytes size_of(const c10::StorageImpl& storage) {
  return Bytes(static_cast<std::int64_t>(storage.nbytes()));
}

AddressRange range_of(const c10::StorageImpl& storage) {
  return {data_of(storage).get(), storage.nbytes()};
}

// Whether the bytes are from an allocator that recoup knows, in this scope or an earlier one.
bool is_of_known_allocator(const c10::StorageImpl& storage, const StorageHooks& hooks) {
  const c10::DeleterFnPtr deleter = data_of(storage).get_deleter();
  return deleter == hooks.pool || deleter == hooks.program || deleter == hooks.overflow;
}

}  // namespace

void Storages::died(StorageRecord& record) {
  const Request request(engine_, device_.external());
  engine_.storage_died(record.id);
  records_.remove(record);
}

void Storages::moved_out_died(const void* address) {
  if (StorageRecord* const record = device_.take_moved_out(address)) {
    const Request request(engine_, device_.external());
    device_.external().note_dead(*record);
  }
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
    offered_.insert_or_assign(&storage, Offered{.weak = c10::weak_intrusive_ptr<c10::StorageImpl>(
                                                    StoragePtr::reclaim_copy(&storage)),
                                                .number = offers_++});
    arm(storage);  // no op has seen it yet
  }
}

void Storages::end_offers() {
  if (!device_.can().segments || offered_.empty()) {
    return;
  }
  device_.find_segments();
  std::vector<std::pair<std::size_t, StoragePtr>> storages;
  for (const auto& [storage, offered] : offered_) {
    if (StoragePtr held = offered.weak.lock()) {
      storages.emplace_back(offered.number, std::move(held));
    }
  }
  std::sort(storages.begin(), storages.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  for (auto& [number, storage] : storages) {
    (void)find(*storage);
    mutex_.graveyard().add(std::move(storage));
  }
  engine_.update_segments();
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
// An external storage without owners other than recoup may get new ones: weak references (for
// example of torch.multiprocessing's cache) find what lineage keeps. Then it belongs to the program
// again, under a new id, with all dependents of its content.
StorageId Storages::id_of(StorageRecord& external) {
  if (!external.id.valid()) {
    external.id = engine_.revive_external(std::exchange(external.let_go, ValueId()));
  }
  return external.id;
}

StorageId Storages::charge_external(StorageRecord& record, Bytes size, Engine::Charge charge,
                                    SegmentId segment) {
  AtEnd not_charged([&] {
    mutex_.graveyard().add(std::move(record.strong));
    records_.remove(record);
  });
  record.id = engine_.add_external(&record, size, charge, segment);
  not_charged.cancel();
  return record.id;
}

StorageId Storages::reserve(Bytes size, Engine::Charge charge) {
  auto nothing = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), 0,
                                                       device_.no_bytes(), nullptr, false);
  StorageRecord& record = records_.add(*nothing);
  record.strong = std::move(nothing);
  const StorageId reserved = charge_external(record, size, charge);
  (void)engine_.user().pin(reserved);  // there is nothing to bring in
  return reserved;
}

void Storages::charge_window(Bytes window) {
  window_.change(
      window, [this](Bytes size) { return reserve(size, Engine::Charge::kWindow); },
      [this](StorageId charged) { release_reserved(charged); });
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
  // Allocated outside of any op that recoup received (torch.tensor writes its bytes itself): a
  // non-recomputable value.
  StorageRecord& added = records_.add(storage);
  added.id = engine_.adopt({.block = *block, .nbytes = size_of(storage), .handle = &added});
  if (records_.has_view_in(range_of(storage))) {
    engine_.user().escape(added.id);
  }
  return added.id;
}

// Note [Views of memory]
// DLPack, NumPy, a slice of a storage and from_blob in C++ make a storage over memory that another
// storage may own: a write through either writes to both. Such a view escapes when it is met, and
// so does the owner, whichever is met first. Then the owner's dependents are restored, or are
// computed from a private copy, before an op writes through the view. Nothing that is made later is
// recomputed from its bytes. Views that share memory have all escaped. Two owners share nothing.
//
// Memory of the pool is in no list of addresses. A view of it is made inside the scope by code that
// takes the address, which is an escape, unless the bytes were undefined then: see
// Note [Unseen writers]. So the owner is looked up when the view is met.
void Storages::escape_owners(AddressRange range) {
  while (StorageRecord* const owner = live_owner_in(range)) {
    // It may die on another thread, but weak references keep the fields that are read here.
    if (data_of(*owner->impl).get() != reinterpret_cast<const void*>(owner->range.from)) {
      records_.unwatch_owner(*owner);  // it has other memory by now
      continue;
    }
    const RecordId self = owner->self;
    const StorageId id = id_of(*owner);
    TORCH_CHECK(on_scope_thread() || !engine_.user().has_needed_dependents(id),
                "recoup: a tensor's memory was reused for another tensor on a thread outside the "
                "budget scope, while evicted tensors must be recomputed from its content. Hold "
                "recoup.pin on the tensor, or first call recoup.materialize on the tensors "
                "computed from it");
    if (device_.brings_in()) {
      (void)engine_.user().pin(id);
    }
    escape_unless_it_has(id);
    if (records_.contains(self)) {
      records_.unwatch_owner(records_[self]);
    }
  }
}

// A dead owner's memory may have been reused by another storage.
StorageRecord* Storages::live_owner_in(AddressRange range) {
  StorageRecord* owner = records_.owner_in(range);
  while (owner != nullptr && owner->weak.expired()) {
    records_.unwatch_owner(*owner);
    device_.external().note_dead(*owner);
    owner = records_.owner_in(range);
  }
  return owner;
}

// Note [Private memory]. Whether memory that PyTorch did not allocate is written only through
// tensors of this storage.
bool Storages::is_private_owner(const c10::StorageImpl& storage) {
  const c10::DataPtr& data = data_of(storage);
  if (device_.owns(data.get()) || !is_private(data, device_.hooks())) {
    return false;
  }
  while (StorageRecord* const owner = live_owner_in(range_of(storage))) {
    if (!is_shown_by_slices_alone(*owner, storage)) {
      return false;
    }
    forget_whole(*owner);
  }
  return true;
}

// Whether `slice` is a slice of the owner's storage, and only slices and its Python object own that
// storage. Then no tensor shows it.
bool Storages::is_shown_by_slices_alone(const StorageRecord& owner,
                                        const c10::StorageImpl& slice) const {
  if (whole_of(data_of(slice)) != owner.impl) {
    return false;
  }
  std::size_t holders = owner.impl->pyobj_slot()->load_pyobj() == nullptr ? 1 : 2;
  records_.for_each_external([&](const StorageRecord& record) {
    holders += record.strong || !record.weak.expired()
                   ? static_cast<std::size_t>(whole_of(data_of(*record.impl)) == owner.impl)
                   : 0;
  });
  holders += owner.strong ? 1U : 0U;
  return c10::raw::intrusive_ptr::use_count(owner.impl) <= holders;
}

// The storage will be registered anew the next time.
void Storages::disown(const c10::StorageImpl& storage, StorageId id) {
  engine_.disown_external(id);
  if (const StorageRecord* const left = records_.external(&storage)) {
    records_.unindex_external(*left);
  }
}

// The whole storage escapes and is disowned, so nothing depends on it any more. If a tensor shows
// it again, it is registered anew.
void Storages::forget_whole(StorageRecord& owner) {
  const c10::StorageImpl& storage = *owner.impl;
  const StorageId id = id_of(owner);
  escape_unless_it_has(id);
  disown(storage, id);
}

// The block may begin before the view.
void Storages::escape_in_pool(const void* data) {
  const Pool& pool = engine_.pool();
  const PoolOffset offset = device_.arena().offset(data);
  std::optional<BlockId> block = pool.find(offset);
  for (BlockId at = pool.first(); !block && at.valid(); at = pool.next(at)) {
    const BlockView view = pool.view(at);
    if (offset < view.offset + view.size) {
      block = at;
    }
  }
  if (block) {
    if (const StorageId owner = engine_.storage_in(*block); owner.valid()) {
      escape_unless_it_has(owner);
    }
  }
}

void Storages::escape_unless_it_has(StorageId storage) {
  if (!engine_.value(engine_.current(storage)).escaped || engine_.values()[storage].shown_only) {
    engine_.user().escape(storage);
  }
}

StorageRecord& Storages::add_overflow(c10::StorageImpl& storage) {
  device_.hooks().met(&storage);
  device_.external().sweep_before_meeting();
  StorageRecord& added = records_.add(storage);
  added.range = range_of(storage);
  return added;
}

void Storages::overflow_is_known(StorageRecord& record) {
  records_.index_external(record);
  device_.external().watch_overflow(record);
  if (records_.has_view_in(record.range)) {
    engine_.user().escape(record.id);
  }
}

// Invalid: the storage has no record, or the record of memory that it has no longer.
StorageId Storages::find_known_external(c10::StorageImpl& storage) {
  const void* const data = data_of(storage).get();
  // A view has the same address but another deleter.
  const bool ours = data_of(storage).get_deleter() == device_.hooks().pool;
  StorageRecord* const moved_out = ours ? device_.moved_out_to(data) : nullptr;
  if (moved_out != nullptr && moved_out->impl != &storage) {
    records_.unindex_external(*moved_out);
    rebind(*moved_out, storage);  // its DataPtr was swapped into another storage
    records_.index_external(*moved_out);
  }
  StorageRecord* const known = records_.external(&storage);
  if (known == nullptr) {
    return {};
  }
  const StorageId id = id_of(*known);
  if (known->range.from == reinterpret_cast<std::uintptr_t>(data)) {
    return id;
  }
  // resize_ or set_ has replaced the memory unseen: the former content is gone. This succeeds
  // only if no evicted value depends on it. Otherwise it throws, now and the next time.
  disown(storage, id);
  return {};
}

Storages::Origin Storages::origin_of(const c10::StorageImpl& storage) {
  if (is_of_known_allocator(storage, device_.hooks())) {
    return Origin::kScope;
  }
  return is_private_owner(storage) ? Origin::kForeign : Origin::kView;
}

StorageId Storages::find_external(c10::StorageImpl& storage) {
  if (const StorageId known = find_known_external(storage); known.valid()) {
    return known;
  }
  device_.hooks().met(&storage);
  device_.external().sweep_before_meeting();
  const void* const data = data_of(storage).get();
  const AddressRange range = range_of(storage);
  const Origin origin = origin_of(storage);
  switch (origin) {
    case Origin::kScope:
      device_.backend().adopt(storage);
      break;
    case Origin::kForeign:
      break;
    case Origin::kView:
      // Until this has succeeded, the view is not recorded.
      escape_owners(range);
      if (device_.owns(data)) {
        escape_in_pool(data);
      }
  }
  // The window of overflow memory is charged instead of the bytes in it.
  const Bytes window_there = device_.hooks().overflow_window(data);
  if (window_there > Bytes(0) && window() == Bytes(0)) {
    charge_window(window_there);
  }
  StorageRecord& added = records_.add(storage);
  added.range = range;
  added.view = origin == Origin::kView;
  // Memory inside the arena that other code wrapped (copy-on-write) is charged already.
  const Bytes size = device_.owns(data) ? Bytes(0) : size_of(storage);
  const bool counted = window_there > Bytes(0) || device_.backend().is_outside(data_of(storage));
  const bool offered = offered_.contains(&storage);
  const SegmentId segment = counted && offered ? device_.segment_of(storage) : SegmentId();
  charge_external(added, size, counted ? Engine::Charge::kAmongOutside : Engine::Charge::kNow,
                  segment);
  records_.index_external(added);
  if (added.view || records_.has_view_in(range)) {
    engine_.user().escape(added.id);
  } else if (device_.brings_in() && !(offered && (!device_.can().segments || segment.valid()))) {
    (void)engine_.user().pin(added.id);  // code may hold its address
  }
  return added.id;
}

// Null if the storage has bytes or is dying. A storage with a Python object has bytes: locking its
// weak reference here could wait for the interpreter, whose owner may wait for the engine's lock.
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

bool Storages::is_watchable(const c10::StorageImpl& storage) const {
  return is_of_known_allocator(storage, device_.hooks()) ||
         is_slice_or_mapping(data_of(storage).get_deleter());
}

// Note [Unseen writers]
// A C extension that takes tensor.data_ptr() writes without an op, and the dependents of the
// storage would be recomputed from the new content. So every storage that an op has read or made
// carries a materializer, a hook of StorageImpl that fires once, on the first mutable access
// outside the ops that recoup receives. The hook is off while kernels run: they take mutable
// pointers all the time, some of them on several threads. Tensors from `empty` are usually filled
// by pointer, so the first access is no reason to distrust them for ever. But the code that filled
// one may use the pointer again (DDP's reducer does), so the storage is not moved any more.
void Storages::arm_with(c10::StorageImpl& storage, AccessHook hook) const {
  if (is_watchable(storage) && !has_access_hook(storage)) {
    set_access_hook(storage, hook);
  }
}

void Storages::disarm(c10::StorageImpl& storage) const {
  if (!has_access_hook(storage)) {
    return;
  }
  const bool evicted = data_of(storage).get_deleter() == device_.hooks().evicted;
  if (is_watchable(storage) || evicted) {
    clear_access_hook(storage);
  }
}

}  // namespace recoup::detail
