// A hash that tells things apart. The same on all machines that have their low bytes first, so that
// a file may hold it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace recoup::detail {

// Of what `hash` is of, and a word more.
[[nodiscard]] constexpr std::uint64_t hash_with(std::uint64_t hash, std::uint64_t word) {
  hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
  return hash ^ (hash >> 32);
}

// And a text more.
[[nodiscard]] inline std::uint64_t hash_with(std::uint64_t hash, std::string_view text) {
  hash = hash_with(hash, text.size());
  while (!text.empty()) {
    std::uint64_t word = 0;
    const std::size_t size = std::min(text.size(), sizeof word);
    std::memcpy(&word, text.data(), size);
    hash = hash_with(hash, word);
    text.remove_prefix(size);
  }
  return hash;
}

}  // namespace recoup::detail
