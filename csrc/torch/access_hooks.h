// What PyTorch calls when somebody takes the address of an armed storage to write to it.
#pragma once

#include <c10/core/StorageImpl.h>

namespace recoup::detail {

// Note [Unseen writers]: the storage escapes.
void on_mutable_access(c10::StorageImpl* storage);
// Of one whose bytes nobody has defined: it is pinned for as long as it lives.
void on_definition(c10::StorageImpl* storage);

}  // namespace recoup::detail
