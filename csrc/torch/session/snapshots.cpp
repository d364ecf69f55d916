#include "csrc/torch/session/snapshots.h"

#include <algorithm>
#include <cstring>

namespace recoup::detail {

void Snapshots::add(c10::StorageImpl& storage, Session& session, const EngineLock& lock) {
  Snapshot before{.memory = storage._mutable_data_ptr_no_checks().get(),
                  .size = storage.nbytes(),
                  .gpu = session.gpu(lock)};
  all_.reserve(all_.size() + 1);  // so that push_back cannot throw and leak the copy
  if (before.gpu != nullptr) {
    before.copy = before.gpu->keep_copy(before.memory, before.size);
  } else if (before.size > 0) {
    before.copy =
        session.memory().allocate_aside(Bytes(static_cast<std::int64_t>(before.size)), lock);
    std::memcpy(before.copy, before.memory, before.size);
  }
  all_.push_back(before);
}

void Snapshots::drop(Session& session, const EngineLock& lock) noexcept {
  for (const Snapshot& before : all_) {
    if (before.copy == nullptr) {
      continue;
    }
    if (before.gpu != nullptr) {
      Gpu::drop_copy(before.copy);
    } else {
      session.memory().free_aside(before.copy, lock);
    }
  }
  all_.clear();
}

std::uint32_t Snapshots::in_pool() const noexcept {
  return static_cast<std::uint32_t>(std::count_if(
      all_.begin(), all_.end(),
      [](const Snapshot& each) { return each.copy != nullptr && each.gpu == nullptr; }));
}

void Snapshots::restore() const noexcept {
  for (const Snapshot& before : all_) {
    if (before.gpu != nullptr) {
      before.gpu->put_back(before.memory, before.copy, before.size);
    } else if (before.copy != nullptr) {
      std::memcpy(before.memory, before.copy, before.size);
    }
  }
}

}  // namespace recoup::detail
