#include "recoup/errors.h"

#include "csrc/base/check.h"
#include "csrc/base/strings.h"

namespace recoup {
namespace detail {

void check_failed(const char* condition, const char* file, int line, const std::string& message) {
  throw InternalError(str_cat("recoup: internal error, please report it: ", condition,
                              " failed at ", file, ":", line, message.empty() ? "" : ": ",
                              message));
}

}  // namespace detail

std::string OutOfBudgetReport::to_string() const {
  using recoup::to_string;
  return detail::str_cat(
      "recoup: out of budget in ", op, ": asked for ", to_string(asked), " of a budget of ",
      to_string(budget), reason.empty() ? "" : "; ", reason, ". Held: ", to_string(leaves),
      " leaves, ", to_string(pinned), " pinned, ", to_string(workspace), " workspace, ",
      to_string(external), " made outside the scope; ", to_string(evictable),
      " evictable; largest window that can be freed: ", to_string(largest_window),
      ". This needs at least ", to_string(least), "; ",
      enough == Bytes(0)
          ? "no budget would do"
          : detail::str_cat("a budget of ", to_string(enough),
                            " is enough for all that ran so far and for this, and nobody knows yet "
                            "what comes after it"),
      ".");
}

}  // namespace recoup
