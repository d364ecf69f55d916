// Checks of recoup's own invariants. RECOUP_CHECK is always on and must be O(1). RECOUP_DCHECK is
// on in builds with RECOUP_ENABLE_DCHECK.
#pragma once

#include "csrc/base/strings.h"
#include "recoup/errors.h"

namespace recoup::detail {
[[noreturn]] RECOUP_API void check_failed(const char* condition, const char* file, int line,
                                          const std::string& message);
}  // namespace recoup::detail

#define RECOUP_CHECK(condition, ...)                                          \
  do {                                                                        \
    if (!(condition)) [[unlikely]] {                                          \
      ::recoup::detail::check_failed(#condition, __FILE__, __LINE__,          \
                                     ::recoup::detail::str_cat(__VA_ARGS__)); \
    }                                                                         \
  } while (false)

#ifdef RECOUP_ENABLE_DCHECK
#define RECOUP_DCHECK(condition, ...) RECOUP_CHECK(condition, __VA_ARGS__)
#else
#define RECOUP_DCHECK(condition, ...) \
  do {                                \
  } while (false)
#endif
