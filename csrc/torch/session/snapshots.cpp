#include "csrc/torch/session/snapshots.h"

#include <algorithm>

namespace recoup::detail {

void Snapshots::add(c10::StorageImpl& storage, Session& session, const EngineLock& lock) {
  Snapshot before{.memory = storage._mutable_data_ptr_no_checks().get(),
                  .size = storage.nbytes(),
                  .backend = &session.backend(lock)};
  all_.reserve(all_.size() + 1);  // so that push_back cannot throw and leak the copy
  const Bytes size(static_cast<std::int64_t>(before.size));
  // Within a capture the copy is the graph's, whose memory is the pool's.
  if (!session.can().copies_in_pool && !session.memory().capturing()) {
    before.copy = before.backend->keep_copy(before.memory, before.size);
  } else if (before.size > 0) {
    before.copy = session.memory().allocate_aside(size, lock);
    before.in_pool = true;
    before.backend->copy(before.copy, before.memory, size);
  }
  all_.push_back(before);
}

void Snapshots::drop(Session& session, const EngineLock& lock) noexcept {
  for (const Snapshot& before : all_) {
    if (before.in_pool) {
      session.memory().free_aside(before.copy, lock);
    } else {
      before.backend->drop_copy(before.copy);
    }
  }
  all_.clear();
}

std::uint32_t Snapshots::in_pool() const noexcept {
  return static_cast<std::uint32_t>(
      std::count_if(all_.begin(), all_.end(), [](const Snapshot& each) { return each.in_pool; }));
}

void Snapshots::restore() const noexcept {
  for (const Snapshot& before : all_) {
    before.backend->put_back(before.memory, before.copy, before.size);
  }
}

}  // namespace recoup::detail
