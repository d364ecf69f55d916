// recoup's functions that PyTorch calls for a storage.
#pragma once

#include <c10/core/Allocator.h>

#include "csrc/torch/compat/storage_access.h"
#include "recoup/types.h"

namespace recoup::detail {

// They get no argument of recoup's, so they find the session in the table of sessions. The layers
// below the table get them as pointers.
struct StorageHooks {
  c10::DeleterFnPtr pool = nullptr;  // deletes bytes of the pool; given for the CPU's, see Backend
  c10::DeleterFnPtr program = nullptr;   // deletes bytes from PyTorch's own allocator of the device
  c10::DeleterFnPtr overflow = nullptr;  // deletes overflow memory
  c10::DeleterFnPtr evicted = nullptr;   // deletes an EvictedContext
  // Note [Unseen writers]
  AccessHook written = nullptr;  // code takes the address to write to it
  AccessHook defined = nullptr;  // the same, for bytes that are still undefined
  // Note [Suspended scopes]: called when a session meets a storage for the first time.
  AccessHook met = nullptr;
  // Bytes of the overflow memory around an address that are resident; 0: there is none.
  Bytes (*overflow_window)(const void* address) = nullptr;
  // PyTorch's allocator on the CPU while a budget is in force.
  c10::Allocator* allocator_of_cpu = nullptr;
};

}  // namespace recoup::detail
