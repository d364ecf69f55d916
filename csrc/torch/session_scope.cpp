#include "csrc/torch/session_scope.h"

#include <thread>
#include <utility>

#include "csrc/base/check.h"
#include "csrc/torch/session.h"

namespace recoup::detail {

SessionScope::SessionScope(Session& session, const Arena& arena)
    : begin_(arena.at(Bytes(0))), end_(arena.at(arena.size())), session_(&session) {}

// Freeing may free more, by way of what died with a storage: calls are counted, not locked.
template <class Act>
bool SessionScope::with_session(Act&& act) const {
  ++inside_;
  Session* const session = session_;
  try {
    if (session != nullptr) {
      act(*session);
    }
  } catch (...) {
    --inside_;
    throw;
  }
  --inside_;
  return session != nullptr;
}

bool SessionScope::wants(Bytes size) const {
  bool wanted = false;
  with_session([&](const Session& session) {
    wanted = session.in_scope(static_cast<std::size_t>(size.count()));
  });
  return wanted;
}

void* SessionScope::allocate(Bytes size, cuda::Stream stream) {
  // Only threads of the scope ask for memory, and it is not left while they do.
  Session* const session = session_;
  RECOUP_CHECK(session != nullptr);
  return session->allocate(static_cast<std::size_t>(size.count()), stream);
}

bool SessionScope::empty() const {
  const std::lock_guard lock(mutex_);
  return session_ == nullptr && retired_ && retired_->empty();
}

// What the session says, or what is left of it.
Bytes SessionScope::count(Bytes (Session::*of_session)() const,
                          Bytes (RetiredArena::*of_rest)() const) const {
  Bytes bytes;
  if (!with_session([&](const Session& session) { bytes = (session.*of_session)(); })) {
    const std::lock_guard lock(mutex_);
    bytes = retired_ ? ((*retired_).*of_rest)() : Bytes(0);
  }
  return bytes;
}

Bytes SessionScope::reserved() const { return count(&Session::reserved, &RetiredArena::backed); }

Bytes SessionScope::used() const { return count(&Session::used, &RetiredArena::used); }

void SessionScope::free(void* memory) {
  if (with_session([memory](Session& session) { session.free(memory); })) {
    return;
  }
  const std::lock_guard lock(mutex_);
  if (retired_) {
    retired_->release(memory);
  } else {
    freed_early_.push_back(memory);
  }
}

void SessionScope::record_stream(void* memory, cuda::Stream stream) {
  // Of one that has stopped nothing is given out again until the device is done with all of it.
  with_session([&](Session& session) { session.record_stream(memory, stream); });
}

void SessionScope::close() {
  session_ = nullptr;
  while (inside_ > 0) {
    std::this_thread::yield();
  }
}

void SessionScope::retire(std::unique_ptr<Arena> arena, std::span<const BlockView> blocks) {
  const std::lock_guard lock(mutex_);
  retired_.emplace(std::move(arena), blocks);
  for (void* const memory : freed_early_) {
    retired_->release(memory);
  }
  freed_early_.clear();
}

}  // namespace recoup::detail
