// Compiled with -mavx2, so this file must not include code that other files share.
#include <cstddef>

#include "csrc/disk/checksum.h"
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace recoup::detail {

std::uint64_t avx2_checksum(const void* bytes, std::int64_t size) {
  return XXH3_64bits(bytes, static_cast<std::size_t>(size));
}

}  // namespace recoup::detail
