// Copies of small storages, made before a kernel that may have to be undone.
#pragma once

#include <c10/core/StorageImpl.h>
#include <c10/util/SmallVector.h>

#include <cstddef>

#include "csrc/torch/session/session.h"

namespace recoup::detail {

// The copies are in the session's pool, or where Backend::keep_copy has them.
class Snapshots {
 public:
  Snapshots() = default;
  Snapshots(const Snapshots&) = delete;
  Snapshots& operator=(const Snapshots&) = delete;

  // Throws OutOfBudget; `drop` must be called even then.
  void add(c10::StorageImpl& storage, Session& session, const EngineLock& lock);
  // Writes the copies back.
  void restore() const noexcept;
  // Frees the copies; must be called before the destructor.
  void drop(Session& session, const EngineLock& lock) noexcept;
  // The number of copies in the pool.
  [[nodiscard]] std::uint32_t in_pool() const noexcept;

 private:
  struct Snapshot {
    void* memory = nullptr;
    std::size_t size = 0;
    Backend* backend = nullptr;
    void* copy = nullptr;
    bool in_pool = false;
  };
  c10::SmallVector<Snapshot, 2> all_;
};

}  // namespace recoup::detail
