#include "recoup/test_aids.h"

#include <charconv>
#include <stdexcept>
#include <vector>

#include "csrc/base/strings.h"

namespace recoup {
namespace {

[[noreturn]] void throw_unknown(std::string_view word) {
  throw std::invalid_argument(detail::str_cat(
      "'", word,
      "' is not a test aid; the test aids are poison, shake, in-place, page, fail-allocation=K, "
      "fail-replay=K, fail-spill=K, fail-fetch=K, fail-page=K, force-eviction=K, "
      "delay=MICROSECONDS and persistent; numbers "
      "are 1 or more, and persistent needs an aid with a K"));
}

std::int64_t parse_count(std::string_view word, std::string_view digits) {
  std::int64_t count = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), count);
  if (error != std::errc() || end != digits.data() + digits.size() || count < 1) {
    throw_unknown(word);
  }
  return count;
}

}  // namespace

TestAids parse_test_aids(std::string_view text) {
  TestAids aids;
  while (true) {
    const std::size_t comma = text.find(',');
    const std::string_view word = text.substr(0, comma);
    const std::size_t equals = word.find('=');
    const std::string_view name = word.substr(0, equals);
    if (equals == std::string_view::npos) {
      bool* const flag = name == "poison"       ? &aids.poison
                         : name == "shake"      ? &aids.shake
                         : name == "in-place"   ? &aids.in_place
                         : name == "page"       ? &aids.page
                         : name == "persistent" ? &aids.persistent
                                                : nullptr;
      if (flag == nullptr) {
        throw_unknown(word);
      }
      *flag = true;
    } else {
      std::int64_t* const count = name == "fail-allocation"  ? &aids.fail_allocation
                                  : name == "fail-replay"    ? &aids.fail_replay
                                  : name == "fail-spill"     ? &aids.fail_spill
                                  : name == "fail-fetch"     ? &aids.fail_fetch
                                  : name == "fail-page"      ? &aids.fail_page
                                  : name == "force-eviction" ? &aids.force_eviction
                                  : name == "delay"          ? &aids.delay
                                                             : nullptr;
      if (count == nullptr) {
        throw_unknown(word);
      }
      *count = parse_count(word, word.substr(equals + 1));
    }
    if (comma == std::string_view::npos) {
      break;
    }
    text.remove_prefix(comma + 1);
  }
  if (aids.persistent && aids.fail_allocation + aids.fail_replay + aids.fail_spill +
                                 aids.fail_fetch + aids.fail_page + aids.force_eviction ==
                             0) {
    throw_unknown("persistent");
  }
  return aids;
}

}  // namespace recoup
