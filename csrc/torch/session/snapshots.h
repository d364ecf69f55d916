// The bytes of small storages as they were before a kernel that may have to be taken back.
#pragma once

#include <c10/core/StorageImpl.h>

#include <cstddef>
#include <vector>

#include "csrc/torch/session/session.h"

namespace recoup::detail {

// On the CPU they are in the session's pool. On a GPU they are kept there, in memory outside of the
// budget, and nobody waits.
class Snapshots {
 public:
  Snapshots() = default;
  Snapshots(const Snapshots&) = delete;
  Snapshots& operator=(const Snapshots&) = delete;

  // Throws OutOfBudget; `drop` is due all the same.
  void add(c10::StorageImpl& storage, Session& session, const EngineLock& lock);
  // Puts them back to where they were.
  void restore() const noexcept;
  // Lets go of them; to be called before this is destroyed.
  void drop(Session& session, const EngineLock& lock) noexcept;
  // The number of copies in the pool's memory.
  [[nodiscard]] std::uint32_t in_pool() const noexcept;

 private:
  struct Snapshot {
    void* memory = nullptr;
    std::size_t size = 0;
    Gpu* gpu = nullptr;
    void* copy = nullptr;
  };
  std::vector<Snapshot> all_;
};

}  // namespace recoup::detail
