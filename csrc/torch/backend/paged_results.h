// PagedResults: lets the large results of a kernel be in paged memory.
#pragma once

#include <c10/core/Allocator.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "recoup/types.h"

namespace recoup::detail {

// Note [Paged results]
// ~~~~~~~~~~~~~~~~~~~~
// An op whose operands, results and workspace do not fit in the budget together runs once more, if
// Options::page_window is set, and what did not fit is in paged memory: Note [Paged memory]. If a
// kernel must not run twice, memory that does not fit is paged at once. The window is charged when
// the first op of a scope needs it. Such a result has an address at all
// times, so it is never evicted, costs no bytes of the budget, and cannot be moved. Its op is not
// recorded: nothing has to compute it again.

// While it exists, memory for the kernel that runs on this thread may be paged.
class PagedResults {
 public:
  // Smaller allocations are not worth a block of paged memory.
  static constexpr Bytes kLeast{1 << 20};

  enum class When : std::uint8_t {
    kAlways,
    kIfNeeded,  // if there is no room in the pool
  };
  struct Settings {
    When when;
    Bytes least;                   // smaller allocations are not paged
    const std::string& directory;  // of the file; must outlive the object
    std::function<void()> charge;  // charges the window; throws PoolOutOfMemory
  };
  explicit PagedResults(Settings settings);
  ~PagedResults();
  PagedResults(const PagedResults&) = delete;
  PagedResults& operator=(const PagedResults&) = delete;

  // That of this thread; null: none.
  [[nodiscard]] static const PagedResults* current();
  [[nodiscard]] bool take(Bytes size) const { return size >= settings_.least; }
  [[nodiscard]] When when() const { return settings_.when; }
  // Whether anything was paged.
  [[nodiscard]] bool used() const { return used_; }
  // Throws PoolOutOfMemory, std::system_error or std::invalid_argument.
  [[nodiscard]] c10::DataPtr allocate(std::size_t nbytes) const;

 private:
  const Settings settings_;
  mutable bool used_ = false;
  const PagedResults* const outer_;
};

// Whether the bytes are in paged memory.
[[nodiscard]] bool is_paged(const c10::DataPtr& data);
// The same, also for storages that other code made over these bytes.
[[nodiscard]] bool is_in_paged_memory(const void* address);
// Releases paged memory that a kernel has as a plain pointer. False: it is not paged.
[[nodiscard]] bool release_paged(void* memory);

}  // namespace recoup::detail
