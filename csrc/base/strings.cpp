#include "csrc/base/strings.h"

#include <array>
#include <cstdio>

#include "csrc/base/check.h"
#include "recoup/errors.h"
#include "recoup/types.h"

namespace recoup {
namespace detail {

std::string with_commas(std::int64_t number) {
  const std::string digits = std::to_string(number);
  std::string text;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0 && digits[i - 1] != '-') {
      text.push_back(',');
    }
    text.push_back(digits[i]);
  }
  return text;
}

void check_failed(const char* condition, const char* file, int line, const std::string& message) {
  throw InternalError(str_cat("recoup: internal error, please report it: ", condition,
                              " failed at ", file, ":", line, message.empty() ? "" : ": ",
                              message));
}

}  // namespace detail

std::string to_string(Bytes bytes) {
  static constexpr std::array kUnits = {"KiB", "MiB", "GiB", "TiB"};
  std::string exact = detail::with_commas(bytes.count()) + " bytes";
  double scaled = static_cast<double>(bytes.count());
  if (scaled < 1024.0) {
    return exact;
  }
  std::size_t unit = 0;
  // What would be shown as 1024.0 of a unit is 1.0 of the next.
  for (scaled /= 1024.0; scaled >= 1023.95 && unit + 1 < kUnits.size(); ++unit) {
    scaled /= 1024.0;
  }
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), " (%.1f %s)", scaled, kUnits[unit]);
  return exact + text.data();
}

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
