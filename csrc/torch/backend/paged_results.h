// PagedResults: lets the large results of a kernel be in paged memory.
#pragma once

#include <c10/core/Allocator.h>

#include <string>

#include "recoup/types.h"

namespace recoup::detail {

// Note [Paged results]
// ~~~~~~~~~~~~~~~~~~~~
// An op whose operands, results and workspace do not fit in the budget together runs once more, if
// Options::page_window is set, and what did not fit is in paged memory: Note [Paged memory]. The
// window is charged when the first op of a scope needs it. Such a result has an address at all
// times, so it is never evicted, costs no bytes of the budget, and cannot be moved. Its op is not
// recorded: nothing has to compute it again.

// While it exists, memory for the kernel that runs on this thread is paged if it has `least` bytes
// or more.
class PagedResults {
 public:
  // Smaller allocations are not worth a block of paged memory.
  static constexpr Bytes kLeast{1 << 20};

  // `directory`: that of the file. It must outlive this object.
  PagedResults(Bytes least, const std::string& directory);
  ~PagedResults();
  PagedResults(const PagedResults&) = delete;
  PagedResults& operator=(const PagedResults&) = delete;

  // That of this thread; null: none.
  [[nodiscard]] static const PagedResults* current();
  [[nodiscard]] bool take(Bytes size) const { return size >= least_; }
  // Throws std::system_error or std::invalid_argument.
  [[nodiscard]] c10::DataPtr allocate(std::size_t nbytes) const;

 private:
  const Bytes least_;
  const std::string& directory_;
  const PagedResults* const outer_;
};

// Whether the bytes are in paged memory.
[[nodiscard]] bool is_paged(const c10::DataPtr& data);
// Releases paged memory that a kernel has as a plain pointer. False: it is not paged.
[[nodiscard]] bool release_paged(void* memory);

}  // namespace recoup::detail
