#include "csrc/torch/guest.h"

#include "csrc/torch/sessions.h"

namespace recoup::detail {
namespace {
thread_local GuestFrame* outermost = nullptr;
}  // namespace

GuestFrame* GuestFrame::current() { return outermost; }

GuestFrame::GuestFrame() {
  if (outermost == nullptr) {
    outermost = this;
  }
}

GuestFrame::~GuestFrame() {
  if (outermost != this) {
    return;
  }
  outermost = nullptr;
  const Visit visit;
  for (const auto& [key, held] : held_) {
    // The kernel may have left the scope.
    if (Session* const session = Sessions::numbered(key.first)) {
      const Session::Lock lock(*session);
      session->let_go({.storage = held.storage, .birth = key.second}, lock);
    }
  }
}

void GuestFrame::hold(Session& session, StorageId storage, bool trusted,
                      const Session::Lock& lock) {
  const Key key(session.number(), session.engine(lock).birth(storage));
  const auto [found, added] = held_.try_emplace(key, Held{.storage = storage, .trusted = trusted});
  if (!added) {
    return;
  }
  try {
    (void)session.engine(lock).pin(storage);
  } catch (...) {
    held_.erase(found);
    throw;
  }
}

bool GuestFrame::trusts(const Session& session, StorageId storage,
                        const Session::Lock& lock) const {
  const auto found = held_.find(Key(session.number(), session.engine(lock).birth(storage)));
  return found != held_.end() && found->second.trusted;
}

}  // namespace recoup::detail
