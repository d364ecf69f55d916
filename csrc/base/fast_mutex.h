// FastMutex: a lock that costs one atomic exchange if it is not contended.
#pragma once

#include <atomic>

namespace recoup::detail {

// Three states (Drepper, "Futexes Are Tricky"): free, held, held with waiters. Works with the lock
// guards of std.
class FastMutex {
 public:
  [[nodiscard]] bool try_lock() {
    int expected = kFree;
    return state_.compare_exchange_strong(expected, kHeld, std::memory_order_acquire);
  }
  void lock() {
    if (try_lock()) {
      return;
    }
    while (state_.exchange(kContended, std::memory_order_acquire) != kFree) {
      state_.wait(kContended, std::memory_order_relaxed);
    }
  }
  void unlock() {
    if (state_.exchange(kFree, std::memory_order_release) == kContended) {
      state_.notify_one();
    }
  }

 private:
  static constexpr int kFree = 0;
  static constexpr int kHeld = 1;
  static constexpr int kContended = 2;
  std::atomic<int> state_{kFree};
};

}  // namespace recoup::detail
