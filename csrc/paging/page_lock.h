// PageLock: the lock of paged memory.
#pragma once

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <ctime>

namespace recoup::detail {

// Usable in a signal handler: it makes no library call that a handler must not make. All signals
// are blocked while it is held, so that no other handler of this thread needs it.
class PageLock {
 public:
  // `holder`: the thread that has the lock; 0: none.
  explicit PageLock(std::atomic<pid_t>& holder) noexcept
      : holder_(holder), before_(block_signals()) {
    take(holder_);
  }
  ~PageLock() {
    release(holder_);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  PageLock(const PageLock&) = delete;
  PageLock& operator=(const PageLock&) = delete;

  // Returns the mask from before.
  static sigset_t block_signals() noexcept {
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    return before;
  }
  static void take(std::atomic<pid_t>& holder) noexcept {
    const pid_t thread = gettid();
    for (pid_t none = 0; !holder.compare_exchange_weak(none, thread, std::memory_order_acquire);
         none = 0) {
      constexpr timespec kWait{.tv_sec = 0, .tv_nsec = 50'000};
      nanosleep(&kWait, nullptr);
    }
  }
  static void release(std::atomic<pid_t>& holder) noexcept {
    holder.store(0, std::memory_order_release);
  }
  [[nodiscard]] static bool is_held_here(const std::atomic<pid_t>& holder) noexcept {
    return holder.load(std::memory_order_relaxed) == gettid();
  }

 private:
  std::atomic<pid_t>& holder_;
  sigset_t before_;
};

}  // namespace recoup::detail
