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

namespace {

struct Scaled {
  double size;  // in units
  const char* unit;
  std::int64_t unit_bytes;
};

// The size in the first unit in which it is below `most`.
Scaled scaled(Bytes bytes, double most) {
  static constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  double size = static_cast<double>(bytes.count());
  std::size_t unit = 0;
  for (; size >= most && unit + 1 < kUnits.size(); ++unit) {
    size /= 1024.0;
  }
  return {size, kUnits[unit], std::int64_t{1} << (10 * unit)};
}

}  // namespace

std::string short_text(Bytes bytes) {
  // A size that would be shown as 1024.0 of a unit is shown as 1.0 of the next one.
  const auto [size, unit, _] = scaled(bytes, bytes < Bytes(1024) ? 1024.0 : 1023.95);
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.*f %s", bytes < Bytes(1024) ? 0 : 1, size, unit);
  return text.data();
}

std::string short_size(Bytes bytes) {
  constexpr double kMost = 999.5;  // three digits
  const auto [size, unit, unit_bytes] = scaled(bytes, kMost);
  const int decimals = unit_bytes == 1 || size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2;
  const std::int64_t parts = decimals == 0 ? 1 : decimals == 1 ? 10 : 100;  // of a unit
  const std::int64_t beyond = bytes.count() % unit_bytes * parts;
  const std::int64_t count =
      bytes.count() / unit_bytes * parts + (beyond + unit_bytes - 1) / unit_bytes;
  std::string digits = std::to_string(count % parts);
  digits.insert(0, static_cast<std::size_t>(decimals) - (decimals > 0 ? digits.size() : 0), '0');
  digits.erase(decimals == 0 ? 0 : digits.find_last_not_of('0') + 1);
  return str_cat(count / parts, digits.empty() ? "" : ".", digits, unit);
}

}  // namespace detail

std::string to_string(Bytes bytes) {
  const std::string exact = detail::with_commas(bytes.count()) + " bytes";
  return bytes < Bytes(1024) ? exact : exact + " (" + detail::short_text(bytes) + ")";
}

}  // namespace recoup
