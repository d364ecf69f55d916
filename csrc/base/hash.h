// A hash that tells things apart within one process.
#pragma once

#include <cstdint>

namespace recoup::detail {

// Of what `hash` is of, and a word more.
[[nodiscard]] constexpr std::uint64_t hash_with(std::uint64_t hash, std::uint64_t word) {
  hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
  return hash ^ (hash >> 32);
}

}  // namespace recoup::detail
