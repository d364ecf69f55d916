// OverflowResults: lets the results of a kernel be in overflow memory.
#pragma once

#include <c10/core/Allocator.h>

#include <cstddef>
#include <functional>
#include <vector>

#include "csrc/engine/attempt/op_kernel.h"
#include "csrc/engine/base/op.h"
#include "csrc/torch/overflow/overflow_window.h"
#include "recoup/types.h"

namespace recoup::detail {

// While it exists, memory for the kernel that runs on this thread may be overflow memory, which is
// paged memory: Note [Paged results] in paging.h.
class OverflowResults {
 public:
  // The kernel has freed an allocation of this size.
  using Freed = std::function<void(OverflowKey, Bytes)>;
  // The references must outlive this object.
  OverflowResults(const Attempt& attempt, OverflowWindow& window, Freed freed);
  ~OverflowResults();
  OverflowResults(const OverflowResults&) = delete;
  OverflowResults& operator=(const OverflowResults&) = delete;

  // This thread's object; null: none.
  [[nodiscard]] static const OverflowResults* current();
  [[nodiscard]] const Attempt& attempt() const { return attempt_; }
  // Whether anything was allocated.
  [[nodiscard]] bool used() const { return used_; }
  // Throws OutOfBudget, std::system_error or std::invalid_argument.
  [[nodiscard]] c10::DataPtr allocate(std::size_t nbytes) const;

 private:
  friend void delete_overflow(void* memory);
  void tell_freed(const void* memory) const;

  const Attempt& attempt_;
  OverflowWindow& window_;
  const Freed freed_;
  mutable bool used_ = false;
  struct Held {
    const void* memory;
    Bytes size;
  };
  mutable std::vector<Held> held_;  // what the kernel has allocated and not freed
  const OverflowResults* const outer_;
};

// The key of the overflow memory at an address.
[[nodiscard]] OverflowKey overflow_key(const void* address);
// StorageHooks::overflow and overflow_window. overflow_window_at also answers for storages that
// other code made over these bytes.
void delete_overflow(void* memory);
[[nodiscard]] Bytes overflow_window_at(const void* address);
// Releases overflow memory that a kernel has as a plain pointer. False: it is other memory.
[[nodiscard]] bool release_overflow(void* memory);

}  // namespace recoup::detail
