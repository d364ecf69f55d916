// A test aid: waits of random length at points where threads interact.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <random>
#include <thread>

namespace recoup::detail {

class Delay {
 public:
  // `most_us`: the longest wait in microseconds; half of the calls do not wait. 0: never waits.
  explicit Delay(std::int64_t most_us) : most_us_(most_us) {}

  void wait() const {
    if (most_us_ > 0) [[unlikely]] {
      wait_at_random();
    }
  }

 private:
  void wait_at_random() const {
    thread_local std::minstd_rand random(
        static_cast<std::uint32_t>(std::hash<std::thread::id>()(std::this_thread::get_id())));
    std::this_thread::sleep_for(
        std::chrono::microseconds(static_cast<std::int64_t>(random()) % (2 * most_us_) - most_us_));
  }

  std::int64_t most_us_;
};

}  // namespace recoup::detail
