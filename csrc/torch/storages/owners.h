// Who holds a storage.
#pragma once

#include <c10/core/StorageImpl.h>
#include <c10/util/intrusive_ptr.h>

#include "csrc/torch/compat/interpreter.h"

namespace recoup::detail {

// Whether nobody but `storage` itself holds it. A storage and its Python object keep one another
// alive: while C++ holds a second reference, the object counts as one owner of the storage and the
// storage as one of the object. So two owners are we and an object that nobody in Python refers to.
//
// It may be wrong: Python may be at work, and weak references come back. See Note [Let go, and
// found again] in storages.cpp.
inline bool is_sole_owner(const c10::intrusive_ptr<c10::StorageImpl>& storage) {
  const auto owners = storage.use_count();
  if (owners != 2) {
    return owners == 1;
  }
  // PyTorch's own function for it takes the interpreter's lock, whose holder may wait for ours.
  const PyObject* const object = storage->pyobj_slot()->load_pyobj();
  return object != nullptr && references_to(object) == 1 && storage.use_count() == 2;
}

}  // namespace recoup::detail
