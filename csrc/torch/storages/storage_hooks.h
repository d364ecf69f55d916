// recoup's functions that PyTorch calls for a storage.
#pragma once

#include <c10/core/Allocator.h>

#include "csrc/torch/compat/storage_access.h"

namespace recoup::detail {

// They get no argument of recoup's, so they find the session in the table of sessions. The layers
// below the table get them as pointers.
struct StorageHooks {
  c10::DeleterFnPtr pool = nullptr;     // deletes bytes that the engine has allocated
  c10::DeleterFnPtr program = nullptr;  // deletes bytes that the program allocates on the device
  c10::DeleterFnPtr evicted = nullptr;  // deletes an EvictedContext
  // Note [Unseen writers]
  AccessHook written = nullptr;  // code takes the address to write to it
  AccessHook defined = nullptr;  // the same, for bytes that are still undefined
  // Note [Suspended scopes]: called when a session meets a storage for the first time.
  AccessHook met = nullptr;
};

}  // namespace recoup::detail
