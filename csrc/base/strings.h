// String helpers. str_cat exists because GCC 12 has no <format>.
#pragma once

#include <cstdint>
#include <sstream>
#include <string>

#include "recoup/types.h"

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

// For display, with at most four digits: "1.5 GiB", "512 B".
std::string short_text(Bytes bytes);
// In the form that options take, rounded up to at most three digits: "1.5GiB".
std::string short_size(Bytes bytes);
// 1234567 -> "1,234,567".
std::string with_commas(std::int64_t number);

}  // namespace recoup::detail
