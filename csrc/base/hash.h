// A non-cryptographic hash. It is the same on all little-endian machines, so it may be stored in
// files.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string_view>

namespace recoup::detail {

// Extends a hash by a word.
[[nodiscard]] constexpr std::uint64_t hash_with(std::uint64_t hash, std::uint64_t word) {
  hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
  return hash ^ (hash >> 32);
}

// Extends a hash by a text.
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

// Of a map of texts that finds a std::string_view without a copy.
struct TextHash {
  using is_transparent = void;
  [[nodiscard]] std::size_t operator()(std::string_view text) const {
    return std::hash<std::string_view>()(text);
  }
};

}  // namespace recoup::detail
