#include "csrc/torch/access_hooks.h"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>

#include "csrc/torch/bypass.h"
#include "csrc/torch/kernel_frame.h"
#include "csrc/torch/scope_thread.h"
#include "csrc/torch/session.h"
#include "csrc/torch/sessions.h"

namespace recoup::detail {
namespace {

// The session of the storage's device, when the access is not by one of its own kernels.
Session* watching(const c10::StorageImpl& storage) {
  const bool own = at::in_parallel_region() || Bypass::active() || inside_op();
  return own ? nullptr : Sessions::on(storage.device());
}

// Calls act(engine, id) for a storage of ours whose bytes somebody has got hold of, unless it was
// an op that is known not to keep them.
template <class Act>
void on_access(const c10::StorageImpl& storage, bool may_replay, const Act& act) {
  const Visit visit;
  Session* const session = watching(storage);
  if (session == nullptr) {
    return;
  }
  const EngineLock lock(session->mutex());
  if (may_replay) {
    session->wait_for_replays(lock);
  }
  const StorageId id = session->storages(lock).find_known(storage);
  if (!id.valid()) {
    session->storages(lock).withdraw(storage);
  }
  if (id.valid() && !KernelFrame::trusts(*session, id, lock)) {
    act(session->engine(lock), id);
  }
}

}  // namespace

void on_mutable_access(c10::StorageImpl* storage) {
  on_access(*storage, true, [](Engine& engine, StorageId id) {
    TORCH_CHECK(on_scope_thread() || !engine.user().has_needed_dependents(id),
                "recoup: a tensor's address was taken for writing on a thread outside the budget "
                "scope, while evicted tensors can only be recomputed from its content. Call "
                "recoup.materialize on them first, or pin it with recoup.pin");
    engine.user().escape(id);
  });
}

// Where a frame of ours is trusted, its pin does.
void on_definition(c10::StorageImpl* storage) {
  on_access(*storage, false, [](Engine& engine, StorageId id) {
    if (engine.value(engine.current(id)).resident()) {
      (void)engine.user().pin(id);  // for as long as it lives
    }
  });
}

}  // namespace recoup::detail
