// str_cat: GCC 12 has no <format>.
#pragma once

#include <cstdint>
#include <sstream>
#include <string>

namespace recoup::detail {

template <class... Parts>
std::string str_cat(const Parts&... parts) {
  if constexpr (sizeof...(parts) == 0) {
    return {};
  } else {
    std::ostringstream out;
    (out << ... << parts);
    return std::move(out).str();
  }
}

// 1234567 -> "1,234,567".
std::string with_commas(std::int64_t number);

}  // namespace recoup::detail
