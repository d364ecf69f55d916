// Which threads are of a scope: those whose ops come to us, by the dispatch key that we live on.
#pragma once

#include <c10/core/impl/LocalDispatchKeySet.h>

namespace recoup::detail {

// Such a thread may replay: the one that entered a scope, those that carry it, and those that
// autograd runs its backward on, which are others for each GPU.
inline bool on_scope_thread() {
  return c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::Fake);
}
inline void set_scope_thread(bool on) {
  c10::impl::tls_set_dispatch_key_included(c10::DispatchKey::Fake, on);
}

// Whether the thread is in an op that came to us.
inline bool inside_op() { return c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::Fake); }

}  // namespace recoup::detail
