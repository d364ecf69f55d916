#include "csrc/base/strings.h"

#include <array>
#include <cstdio>

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

}  // namespace recoup
