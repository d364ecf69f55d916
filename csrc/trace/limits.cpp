#include "csrc/trace/limits.h"

#include <boost/nowide/utf/utf.hpp>

namespace recoup::detail {

std::string_view recordable_name(std::string_view name) {
  namespace utf = boost::nowide::utf;
  const char* at = name.data();
  const char* const end = at + name.size();
  std::size_t good = 0;
  while (at != end) {
    const utf::code_point point = utf::utf_traits<char>::decode(at, end);
    const auto size = static_cast<std::size_t>(at - name.data());
    if (point == utf::illegal || point == utf::incomplete || size > kMostNameBytes) {
      break;
    }
    good = size;
  }
  return name.substr(0, good);
}

}  // namespace recoup::detail
