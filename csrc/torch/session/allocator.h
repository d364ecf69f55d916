// The CPU allocator that sends the program's tensors to the pool, and the deleters that bring them
// back. They have no argument of ours and look for the session among all.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/StorageImpl.h>

namespace recoup::detail {

class Session;

// PyTorch's while a budget is in force, and ever after: it passes on what is not the pool's.
c10::Allocator* pool_allocator();
// PyTorch's own.
c10::Allocator* plain_allocator();

// Deletes bytes of the CPU that an engine has given.
void pool_delete(void* pointer);
// Deletes what an evicted storage has in the place of its bytes.
void evicted_delete(void* context);

[[nodiscard]] bool is_evicted(const c10::StorageImpl& storage);
// The session that an evicted storage is of, at work or suspended; null for others. In a Visit.
[[nodiscard]] Session* session_of_evicted(const c10::StorageImpl& storage);

}  // namespace recoup::detail
