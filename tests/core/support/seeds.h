// The number of seeds that a random test takes.
#pragma once

namespace recoup {

// `count` in an ordinary build, `sanitized` under AddressSanitizer, where tests take about seven
// times as long. For a test's seeds, for what it expects of all its seeds together, and for other
// amounts of work.
consteval int seeds([[maybe_unused]] int count, [[maybe_unused]] int sanitized) {
#if defined(__SANITIZE_ADDRESS__)
  return sanitized;
#else
  return count;
#endif
}

// A quarter under AddressSanitizer.
consteval int seeds(int count) { return seeds(count, (count + 3) / 4); }

}  // namespace recoup
