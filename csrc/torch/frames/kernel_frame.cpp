#include "csrc/torch/frames/kernel_frame.h"

#include "csrc/base/at_end.h"
#include "csrc/torch/session/session.h"
#include "csrc/torch/session/sessions.h"
#include "csrc/torch/storages/tensor_storages.h"

namespace recoup::detail {

bool KernelFrame::in_opaque() {
  for (const KernelFrame* frame = innermost(); frame != nullptr; frame = frame->outer_) {
    if (frame->reach_ == Pointers::kAny) {
      return true;
    }
  }
  return false;
}

KernelFrame::KernelFrame(Pointers reach) : reach_(reach), outer_(innermost()) {
  innermost() = this;
}

KernelFrame::~KernelFrame() {
  innermost() = outer_;
  const Visit visit;
  for (const auto& [key, held] : held_) {
    // Null if the kernel has left the scope.
    if (Session* const session = Sessions::numbered(key.first)) {
      const EngineLock lock(session->mutex());
      session->unpin_and_watch({.storage = held.storage, .birth = key.second}, lock);
    }
  }
}

void KernelFrame::hold(Session& session, const at::Tensor& tensor) {
  c10::StorageImpl* const storage = session.tensors().managed(tensor.storage());
  if (storage == nullptr) {
    return;
  }
  const EngineLock lock(session.mutex());
  const Turn turn(session, lock);
  if (const StorageId id = session.storages(lock).find(*storage); id.valid()) {
    hold(session, id, /*trusted=*/false, lock);
  }
}

KernelFrame::Key KernelFrame::key_of(const Session& session, StorageId storage,
                                     const EngineLock& lock) {
  return {session.number(), session.engine(lock).values()[storage].birth};
}

void KernelFrame::hold(Session& session, StorageId storage, bool trusted, const EngineLock& lock) {
  const auto [found, added] = held_.try_emplace(key_of(session, storage, lock),
                                                Held{.storage = storage, .trusted = trusted});
  if (!added) {
    return;
  }
  AtEnd not_pinned([this, where = found] { held_.erase(where); });
  (void)session.engine(lock).user().pin(storage);
  not_pinned.cancel();
}

std::vector<StorageId> KernelFrame::held(const Session& session, const EngineLock& lock) const {
  std::vector<StorageId> storages;
  for (const auto& [key, held] : held_) {
    const PinTicket pin{.storage = held.storage, .birth = key.second};
    if (key.first == session.number() && session.engine(lock).values().holds(pin)) {
      storages.push_back(held.storage);
    }
  }
  return storages;
}

// Only the outermost frame that wants the storage holds it, since that one ends last.
void KernelFrame::hold_in_all(Session& session, StorageId storage, bool integral, bool trusted,
                              const EngineLock& lock) {
  KernelFrame* outermost = nullptr;
  for (KernelFrame* frame = innermost(); frame != nullptr; frame = frame->outer_) {
    if (frame->reach_ == Pointers::kAny || (frame->reach_ == Pointers::kIntegers && integral)) {
      outermost = frame;
    }
  }
  if (outermost != nullptr) {
    outermost->hold(session, storage, trusted, lock);
  }
}

void KernelFrame::hold_all_in_all(Session& session, Arguments values, bool trusted,
                                  const EngineLock& lock) {
  for_each_tensor(values, [&](const at::Tensor& tensor, std::size_t, std::int64_t) {
    const bool integral = is_plain(*tensor.unsafeGetTensorImpl()) &&
                          at::isIntegralType(tensor.scalar_type(), /*includeBool=*/true);
    for_each_storage(session.tensors(), tensor, [&](const c10::StorageImpl& storage) {
      if (const StorageId id = session.storages(lock).find_known(storage); id.valid()) {
        hold_in_all(session, id, integral, trusted, lock);
      }
    });
  });
}

bool KernelFrame::trusts(const Session& session, StorageId storage, const EngineLock& lock) {
  for (const KernelFrame* frame = innermost(); frame != nullptr; frame = frame->outer_) {
    const auto found = frame->held_.find(key_of(session, storage, lock));
    if (found != frame->held_.end() && found->second.trusted) {
      return true;
    }
  }
  return false;
}

}  // namespace recoup::detail
