// Checksums of copies on disk.
#pragma once

#include <cstdint>

namespace recoup::detail {

// The XXH3 hash (64 bits, seed 0) of `size` bytes, computed with the widest vector instructions
// that recoup uses and this processor has. It takes a share of the time of each copy, and of each
// eviction of a value that has a copy.
[[nodiscard]] std::uint64_t checksum(const void* bytes, std::int64_t size);

// checksum() with the instructions that every processor of the architecture has.
[[nodiscard]] std::uint64_t portable_checksum(const void* bytes, std::int64_t size);

#ifdef RECOUP_WITH_AVX2
// checksum() with AVX2.
[[nodiscard]] std::uint64_t avx2_checksum(const void* bytes, std::int64_t size);
#endif

}  // namespace recoup::detail
