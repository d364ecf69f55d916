// Ownership of a storage.
#pragma once

#include <c10/core/StorageImpl.h>
#include <c10/util/intrusive_ptr.h>

#include "csrc/torch/compat/interpreter.h"

namespace recoup::detail {

// Whether `storage` is the only reference. A storage and its Python object keep one another alive:
// while C++ holds a second reference, the object counts as an owner of the storage and the storage
// as one of the object. So the two owners are `storage` and an object without references in Python.
//
// The answer may be outdated: Python may be running, and weak references may be locked again. See
// Note [Let go, and found again] in storages.cpp.
inline bool is_sole_owner(const c10::intrusive_ptr<c10::StorageImpl>& storage) {
  const auto owners = storage.use_count();
  if (owners != 2) {
    return owners == 1;
  }
  // PyTorch's own function for this takes the interpreter's lock, whose owner may wait for the
  // engine's.
  const PyObject* const object = storage->pyobj_slot()->load_pyobj();
  return object != nullptr && references_to(object) == 1 && storage.use_count() == 2;
}

}  // namespace recoup::detail
