// ForkMutex: a mutex that no thread holds while the process forks.
#pragma once

#include <mutex>

namespace recoup::detail {

// A forked child has only the thread that forked, so a mutex that another thread held would stay
// locked there. The thread that forks takes all mutexes of this class before, and frees them in
// both processes. A thread that holds one waits for no other lock. They are never destroyed.
class ForkMutex {
 public:
  ForkMutex();
  ForkMutex(const ForkMutex&) = delete;
  ForkMutex& operator=(const ForkMutex&) = delete;

  void lock() { mutex_.lock(); }
  [[nodiscard]] bool try_lock() { return mutex_.try_lock(); }
  void unlock() { mutex_.unlock(); }

  // Without this call forks take no mutexes. Locks that a thread may hold when it takes a ForkMutex
  // must be taken before a fork by handlers that are registered after this call.
  static void watch_forks();

 private:
  static void before_fork();
  static void after_fork();

  std::mutex mutex_;
  ForkMutex* next_ = nullptr;
};

}  // namespace recoup::detail
