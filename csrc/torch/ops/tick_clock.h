// The processor's own counter, at a third of the cost of steady_clock: with two readings per op,
// the cost matters.
#pragma once

#include <c10/util/ApproximateClock.h>

#include <chrono>

#include "recoup/types.h"

namespace recoup::detail {

class TickClock {
 public:
  using Ticks = c10::approx_time_t;
  [[nodiscard]] static Ticks now() { return c10::getApproximateTime(); }
  // Time between two readings; not negative.
  [[nodiscard]] static Nanoseconds between(Ticks start, Ticks end) {
    static const double nanoseconds_a_tick = calibrate();
    const auto ticks = end > start ? static_cast<double>(end - start) : 0.0;
    return Nanoseconds(static_cast<std::int64_t>(ticks * nanoseconds_a_tick));
  }

 private:
  static double calibrate() {
    using Clock = std::chrono::steady_clock;
    constexpr auto kLong = std::chrono::microseconds(500);
    const auto start = Clock::now();
    const Ticks first = now();
    Clock::duration elapsed{0};
    while (elapsed < kLong) {
      elapsed = Clock::now() - start;
    }
    return static_cast<double>(Nanoseconds(elapsed).count()) / static_cast<double>(now() - first);
  }
};

}  // namespace recoup::detail
