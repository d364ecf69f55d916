// Hooks that PyTorch calls when code takes the address of an armed storage for writing, and a hook
// that recoup calls when a session meets a storage.
#pragma once

#include <c10/core/StorageImpl.h>

namespace recoup::detail {

// Note [Unseen writers]: the storage escapes.
void on_mutable_access(c10::StorageImpl* storage);
// For a storage whose bytes are still undefined: it is pinned for as long as it lives.
void on_definition(c10::StorageImpl* storage);

// Note [Suspended scopes]
// Values that are evicted in a scope that could not be left are recomputed from the present content
// of their sources, once the exit is completed. Until then no session sees the program's ops. So
// taking the address of such a source for writing is refused, and so is any use of it in another
// scope, whose ops take addresses freely. Throws c10::Error.
void on_meeting(c10::StorageImpl* storage);
// Makes this check for code that is about to take the storage's address or to exchange its bytes.
void refuse_if_suspended_needs(const c10::StorageImpl& storage);

}  // namespace recoup::detail
