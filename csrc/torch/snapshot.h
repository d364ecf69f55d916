// The bytes of a small storage as they were before a kernel that may have to be taken back.
#pragma once

#include <c10/core/StorageImpl.h>

#include <cstddef>

#include "csrc/torch/session.h"

namespace recoup::detail {

// On the CPU they are in the session's pool. On a GPU they are kept there, in memory outside of the
// budget, and nobody waits.
class Snapshot {
 public:
  // Throws OutOfBudget.
  Snapshot(c10::StorageImpl& storage, Session& session, const Session::Lock& lock);
  Snapshot(Snapshot&& other) noexcept;
  Snapshot& operator=(Snapshot&&) = delete;

  // Puts them back to where they were.
  void restore() const noexcept;
  // Lets go of them; to be called before it is destroyed.
  void drop(Session& session, const Session::Lock& lock) noexcept;

 private:
  void* memory_;
  std::size_t size_;
  Gpu* gpu_;
  void* copy_ = nullptr;
};

}  // namespace recoup::detail
