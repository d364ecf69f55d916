// PagedResults: lets the large results of a kernel be in paged memory.
#pragma once

#include <c10/core/Allocator.h>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "csrc/engine/attempt/paging.h"
#include "csrc/engine/base/op.h"
#include "recoup/types.h"

namespace recoup::detail {

// While it exists, memory for the kernel that runs on this thread may be paged: Note [Paged
// results] in paging.h.
class PagedResults {
 public:
  struct Settings {
    Paging paging;
    const std::string& directory;  // of the file; must outlive the object
    std::function<void()> charge;  // charges the window; throws PoolOutOfMemory
    // The kernel has freed paged memory, of this size.
    std::function<void(PageKey, Bytes)> freed;
  };
  explicit PagedResults(Settings settings);
  ~PagedResults();
  PagedResults(const PagedResults&) = delete;
  PagedResults& operator=(const PagedResults&) = delete;

  // This thread's object; null: none.
  [[nodiscard]] static const PagedResults* current();
  [[nodiscard]] const Paging& paging() const { return settings_.paging; }
  // Whether anything was paged.
  [[nodiscard]] bool used() const { return used_; }
  // Throws PoolOutOfMemory, std::system_error or std::invalid_argument.
  [[nodiscard]] c10::DataPtr allocate(std::size_t nbytes) const;

 private:
  friend void delete_paged(void* memory);
  void tell_freed(const void* memory) const;

  const Settings settings_;
  mutable bool used_ = false;
  struct Held {
    const void* memory;
    Bytes size;
  };
  mutable std::vector<Held> held_;  // what the kernel has allocated and not freed
  const PagedResults* const outer_;
};

// The key of the paged memory at an address.
[[nodiscard]] PageKey page_key(const void* address);
// Whether the bytes are in paged memory.
[[nodiscard]] bool is_paged(const c10::DataPtr& data);
// Whether the address is in paged memory, also for storages that other code made over these bytes.
[[nodiscard]] bool is_in_paged_memory(const void* address);
// Releases paged memory that a kernel has as a plain pointer. False: it is not paged.
[[nodiscard]] bool release_paged(void* memory);

}  // namespace recoup::detail
