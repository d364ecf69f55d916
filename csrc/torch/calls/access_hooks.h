// What is called when somebody takes the address of an armed storage to write to it, and when a
// session meets a storage.
#pragma once

#include <c10/core/StorageImpl.h>

namespace recoup::detail {

// Note [Unseen writers]: the storage escapes.
void on_mutable_access(c10::StorageImpl* storage);
// Of one whose bytes nobody has defined: it is pinned for as long as it lives.
void on_definition(c10::StorageImpl* storage);

// Note [Suspended scopes]
// What is evicted in a scope that could not be left is recomputed when that is finished, from what
// is there now. Until then nobody sees the program's ops. So the address to write to what it will
// be recomputed from is refused, and so is any use of it in another scope, whose ops take addresses
// as they like. Throws c10::Error.
void on_meeting(c10::StorageImpl* storage);
// Somebody is about to get hold of its address, or to exchange its bytes; the same.
void refuse_if_suspended_needs(const c10::StorageImpl& storage);

}  // namespace recoup::detail
