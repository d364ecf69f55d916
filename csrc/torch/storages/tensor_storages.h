// The storages of a tensor that are on the device of a session.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>
#include <c10/core/StorageImpl.h>

#include "csrc/torch/compat/components.h"
#include "csrc/torch/storages/tensor_device.h"

namespace recoup::detail {

// The storage of a plain tensor on the device; null for other tensors.
inline c10::StorageImpl* plain_storage(const TensorDevice& device, const at::Tensor& tensor) {
  const c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
  if (!is_plain(*impl) || !impl->has_storage() || !device.manages(*impl)) {
    return nullptr;
  }
  c10::StorageImpl* const storage = impl->unsafe_storage().unsafeGetStorageImpl();
  return storage->sym_nbytes().is_heap_allocated() ? nullptr : storage;
}

// Calls visit(storage) for each storage, on the device, of a plain or composite tensor. Returns
// whether the tensor is plain and on the device.
template <class Function>
bool for_each_storage(const TensorDevice& device, const at::Tensor& tensor, Function&& visit) {
  if (c10::StorageImpl* const storage = plain_storage(device, tensor)) {
    visit(*storage);
    return true;
  }
  if (kind_of(tensor) == TensorKind::kComposite) {
    for_each_component(tensor, [&](const c10::Storage& each) {
      if (c10::StorageImpl* const storage = device.managed(each)) {
        visit(*storage);
      }
    });
  }
  return false;
}

}  // namespace recoup::detail
