#include "csrc/torch/frames/access_hooks.h"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <vector>

#include "csrc/torch/backend/bypass.h"
#include "csrc/torch/compat/scope_thread.h"
#include "csrc/torch/frames/kernel_frame.h"
#include "csrc/torch/session/session.h"
#include "csrc/torch/session/sessions.h"
#include "csrc/torch/storages/request.h"

namespace recoup::detail {
namespace {

// A thread that carries the scope is inside_op() in its ops even when no session is active.
bool by_kernel_of_ours() {
  return Bypass::active() || (Sessions::any() && (at::in_parallel_region() || inside_op()));
}

// Call it in a Visit.
bool is_needed_by_suspended(const c10::StorageImpl& storage) {
  const std::vector<Session*> suspended = Sessions::suspended();
  return std::any_of(suspended.begin(), suspended.end(), [&](Session* session) {
    const EngineLock lock(session->mutex());
    const StorageId id = session->storages(lock).find_known(storage);
    return id.valid() && session->engine(lock).user().has_needed_dependents(id);
  });
}

// Calls act(engine, id) for a storage of a session whose address was taken, unless an op took it
// that is known not to keep it, or a collective in progress.
template <class Act>
void on_access(const c10::StorageImpl& storage, bool may_replay, const Act& act) {
  const Visit visit;
  Session* const session = by_kernel_of_ours() ? nullptr : Sessions::on(storage.device());
  if (session == nullptr) {
    return;
  }
  const EngineLock lock(session->mutex());
  if (may_replay) {
    session->wait_for_replays(lock);
  }
  const Request request(session->engine(lock), session->tensors().external());
  const StorageId id = session->storages(lock).find_known(storage);
  if (!id.valid()) {
    session->storages(lock).withdraw(storage);
  }
  if (id.valid() && !KernelFrame::trusts(*session, id, lock) &&
      !session->in_flight(lock).used_by_others(session->engine(lock).values().ticket(id))) {
    act(session->engine(lock), id);
  }
}

}  // namespace

void on_mutable_access(c10::StorageImpl* storage) {
  if (!by_kernel_of_ours()) {
    refuse_if_suspended_needs(*storage);
  }
  on_access(*storage, true, [](Engine& engine, StorageId id) {
    TORCH_CHECK(on_scope_thread() || !engine.user().has_needed_dependents(id),
                "recoup: a tensor's address was taken for writing on a thread outside the budget "
                "scope, while evicted tensors must be recomputed from its content. Hold "
                "recoup.pin on the tensor, or first call recoup.materialize on the tensors "
                "computed from it");
    engine.user().escape(id);
  });
}

void refuse_if_suspended_needs(const c10::StorageImpl& storage) {
  const Visit visit;
  TORCH_CHECK(!is_needed_by_suspended(storage),
              "recoup: a tensor's address was taken for writing, while tensors of a suspended "
              "budget scope must be recomputed from its content. First complete the scope's exit "
              "with run.resume(budget), or delete its run, which loses its evicted tensors");
}

void on_meeting(c10::StorageImpl* storage) {
  TORCH_CHECK(!is_needed_by_suspended(*storage),
              "recoup: a tensor was used in a new budget scope, while tensors of a suspended "
              "scope must be recomputed from its content. First complete the suspended scope's "
              "exit with run.resume(budget), or delete its run, which loses its evicted tensors");
}

// on_access skips storages that a frame trusts: the frame's pin is enough.
void on_definition(c10::StorageImpl* storage) {
  on_access(*storage, false, [](Engine& engine, StorageId id) {
    if (engine.value(engine.current(id)).resident()) {
      (void)engine.user().pin(id);  // until the storage dies
    }
  });
}

}  // namespace recoup::detail
