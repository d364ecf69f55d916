#include "csrc/torch/storages/private_memory.h"

#include <ATen/MapAllocator.h>

#include <atomic>

#include "csrc/torch/compat/storage_access.h"

namespace recoup::detail {
namespace {

std::atomic<c10::DeleterFnPtr>& slice_deleter() {
  static std::atomic<c10::DeleterFnPtr> deleter{nullptr};
  return deleter;
}

std::atomic<c10::DeleterFnPtr>& mapping_deleter() {
  static std::atomic<c10::DeleterFnPtr> deleter{nullptr};
  return deleter;
}

bool is_private_mapping(const c10::DataPtr& data) {
  const at::MapAllocator* const mapping = at::MapAllocator::fromDataPtr(data);
  if (mapping == nullptr) {
    return false;
  }
  constexpr int kShared = at::ALLOCATOR_MAPPED_SHARED | at::ALLOCATOR_MAPPED_SHAREDMEM;
  mapping_deleter().store(data.get_deleter(), std::memory_order_relaxed);
  return (mapping->flags() & kShared) == 0;
}

}  // namespace

const c10::StorageImpl* whole_of(const c10::DataPtr& data) {
  const c10::DeleterFnPtr deleter = slice_deleter().load(std::memory_order_relaxed);
  return deleter != nullptr && data.get_deleter() == deleter
             ? static_cast<const c10::StorageImpl*>(data.get_context())
             : nullptr;
}

bool is_private_mapping(const c10::Storage& storage) {
  return is_private_mapping(data_of(*storage.unsafeGetStorageImpl()));
}

bool is_private(const c10::DataPtr& data, const StorageHooks& hooks) {
  const c10::DataPtr* at = &data;
  while (const c10::StorageImpl* const whole = whole_of(*at)) {
    at = &data_of(*whole);
  }
  return at->get_deleter() == hooks.program || is_private_mapping(*at);
}

bool is_slice_or_mapping(c10::DeleterFnPtr deleter) {
  return deleter != nullptr && (deleter == slice_deleter().load(std::memory_order_relaxed) ||
                                deleter == mapping_deleter().load(std::memory_order_relaxed));
}

void learn_slices(const c10::Storage& slice, const c10::Storage& whole) {
  const c10::DataPtr& data = data_of(*slice.unsafeGetStorageImpl());
  if (data.get_context() == whole.unsafeGetStorageImpl()) {
    slice_deleter().store(data.get_deleter(), std::memory_order_relaxed);
  }
}

}  // namespace recoup::detail
