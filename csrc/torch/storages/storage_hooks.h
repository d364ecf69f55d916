// The functions of ours that PyTorch calls for a storage.
#pragma once

#include <c10/core/Allocator.h>

#include "csrc/torch/compat/storage_access.h"

namespace recoup::detail {

// They have no argument of ours, so they look for the session in the table of all of them. The
// layers below the table are given them.
struct StorageHooks {
  c10::DeleterFnPtr pool = nullptr;     // deletes bytes that the engine has given
  c10::DeleterFnPtr program = nullptr;  // deletes what the program allocates on the device
  c10::DeleterFnPtr evicted = nullptr;  // deletes an EvictedContext
  // Note [Unseen writers]
  AccessHook written = nullptr;  // somebody takes the address to write to it
  AccessHook defined = nullptr;  // the same, of bytes that nobody has defined yet
  // Note [Suspended scopes]: a session meets a storage for the first time.
  AccessHook met = nullptr;
};

}  // namespace recoup::detail
