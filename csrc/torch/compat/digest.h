// A digest of bytes, for Options::check_replays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace recoup::detail {

// FNV-1a over words. It detects differences between two runs of an op, not forged data.
inline std::uint64_t digest(const void* data, std::size_t size) {
  constexpr std::uint64_t kPrime = 0x100000001b3ULL;
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  const auto* bytes = static_cast<const unsigned char*>(data);
  for (; size >= sizeof(std::uint64_t); size -= sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes, sizeof word);
    hash = (hash ^ word) * kPrime;
    hash ^= hash >> 29;
    bytes += sizeof word;
  }
  for (; size > 0; --size) {
    hash = (hash ^ *bytes++) * kPrime;
  }
  return hash;
}

}  // namespace recoup::detail
