// The CPU allocator that takes the program's tensors from the pool, and the deleters of their
// bytes. PyTorch passes them no argument of recoup's, so they look up the session in the table.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/StorageImpl.h>

namespace recoup::detail {

class Session;

// PyTorch's allocator while a budget is in force and ever after: it forwards what the pool does not
// own.
c10::Allocator* pool_allocator();
// PyTorch's own.
c10::Allocator* plain_allocator();

// Deletes CPU bytes that an engine has allocated.
void pool_delete(void* pointer);
// Deletes the context that an evicted storage has in place of its bytes.
void evicted_delete(void* context);

[[nodiscard]] bool is_evicted(const c10::StorageImpl& storage);
// The session, active or suspended, of an evicted storage; null for others. Call it in a Visit.
[[nodiscard]] Session* session_of_evicted(const c10::StorageImpl& storage);

}  // namespace recoup::detail
