#include "csrc/disk/checksum.h"

#include <cstddef>
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace recoup::detail {

std::uint64_t portable_checksum(const void* bytes, std::int64_t size) {
  return XXH3_64bits(bytes, static_cast<std::size_t>(size));
}

std::uint64_t checksum(const void* bytes, std::int64_t size) {
#ifdef RECOUP_WITH_AVX2
  if (__builtin_cpu_supports("avx2") != 0) {
    return avx2_checksum(bytes, size);
  }
#endif
  return portable_checksum(bytes, size);
}

}  // namespace recoup::detail
