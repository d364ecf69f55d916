// The number of seeds that a random test takes.
#pragma once

namespace recoup {

// `count` in an ordinary build, a quarter of it under AddressSanitizer, where tests take about
// seven times as long. For a test's seeds, and for what it expects of all its seeds together.
consteval int seeds(int count) {
#if defined(__SANITIZE_ADDRESS__)
  return (count + 3) / 4;
#else
  return count;
#endif
}

}  // namespace recoup
