#include "csrc/cuda/move.h"

#include <algorithm>
#include <cstdlib>

#include "csrc/base/check.h"

namespace recoup::detail::cuda {

void move(Runtime& runtime, Stream stream, void* to, const void* from, Bytes size,
          const Bounce& bounce) {
  RECOUP_CHECK(size > Bytes(0) && bounce.size > Bytes(0));
  auto* const target = static_cast<char*>(to);
  const auto* const source = static_cast<const char*>(from);
  const std::int64_t distance = std::abs(target - source);
  if (distance == 0) {
    return;
  }
  if (distance >= size.count()) {
    runtime.copy(stream, to, from, size);
    return;
  }
  const auto parts = [&](std::int64_t part) { return (size.count() + part - 1) / part; };
  const bool bounces = 2 * parts(bounce.size.count()) < parts(distance);
  const std::int64_t part = bounces ? bounce.size.count() : distance;
  const std::int64_t count = parts(part);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t begin = (target < source ? i : count - 1 - i) * part;
    const Bytes bytes(std::min(part, size.count() - begin));
    if (bounces) {
      runtime.copy(stream, bounce.memory, source + begin, bytes);
      runtime.copy(stream, target + begin, bounce.memory, bytes);
    } else {
      runtime.copy(stream, target + begin, source + begin, bytes);
    }
  }
}

}  // namespace recoup::detail::cuda
