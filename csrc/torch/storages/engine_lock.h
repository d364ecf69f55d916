// The lock around an engine, and whose turn it is to run an op.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "csrc/base/check.h"
#include "csrc/base/fast_mutex.h"
#include "csrc/torch/compat/interpreter.h"
#include "csrc/torch/storages/graveyard.h"

namespace recoup::detail {

class EngineLock;

class EngineMutex {
 public:
  EngineMutex() = default;
  EngineMutex(const EngineMutex&) = delete;
  EngineMutex& operator=(const EngineMutex&) = delete;

  // Around a kernel, and around fork; EngineLock does it for all others. A thread that holds it
  // must not come back: the usual cause is a storage of the program's that dies under the lock
  // instead of in the graveyard. That is a broken invariant, and not a wait without end.
  void lock() {
    if (!mutex_.try_lock()) [[unlikely]] {
      wait();
    }
    holder_.store(this_thread(), std::memory_order_relaxed);
  }
  // What is in the graveyard stays there.
  void unlock() {
    holder_.store(nullptr, std::memory_order_relaxed);
    mutex_.unlock();
  }

  // Gives the lock up until done(), which another thread makes true under the lock.
  template <class Done>
  void wait_until(const EngineLock&, Done&& done) {
    std::unique_lock<EngineMutex> held(*this, std::adopt_lock);
    ++waiting_;
    while (!done()) {
      held.unlock();
      {
        const WithoutInterpreter waiting;
        held.lock();
        if (!done()) {
          changed_.wait(held);
        }
        held.unlock();
      }
      held.lock();
    }
    --waiting_;
    held.release();
  }

  // For who has the lock.
  [[nodiscard]] Graveyard& graveyard() { return graveyard_; }

 private:
  friend class EngineLock;
  void unlock_and_bury();
  void wait();
  // Whether the calling thread holds it.
  [[nodiscard]] bool is_mine() const {
    return holder_.load(std::memory_order_relaxed) == this_thread();
  }
  // An address that no other thread has.
  static const void* this_thread() {
    thread_local char marker = 0;
    return &marker;
  }

  FastMutex mutex_;
  std::atomic<const void*> holder_{nullptr};  // the thread that holds mutex_; null: no thread
  std::condition_variable_any changed_;
  int waiting_ = 0;
  Graveyard graveyard_;
};

// Holds the lock; what died under it is buried when it is given up.
class EngineLock {
 public:
  explicit EngineLock(EngineMutex& mutex) : mutex_(mutex) { mutex.lock(); }
  ~EngineLock() {
    if (mutex_.graveyard_.empty() && mutex_.waiting_ == 0) [[likely]] {
      mutex_.unlock();
    } else {
      mutex_.unlock_and_bury();
    }
  }
  EngineLock(const EngineLock&) = delete;
  EngineLock& operator=(const EngineLock&) = delete;

  [[nodiscard]] bool is_of(const EngineMutex& mutex) const { return &mutex_ == &mutex; }

 private:
  EngineMutex& mutex_;
};

// Around an op, its kernel included: no two threads of the scope are in one, for the engine knows
// one running op. An op within an op's kernel is the same turn.
class Turns {
 public:
  // Waits until nobody else has the turn and busy() is false.
  template <class Busy>
  void begin(EngineMutex& mutex, const EngineLock& lock, Busy&& busy) {
    const std::thread::id self = std::this_thread::get_id();
    const auto free = [&] { return (depth_ == 0 || holder_ == self) && !busy(); };
    if (!free()) [[unlikely]] {
      mutex.wait_until(lock, free);
    }
    holder_ = self;
    ++depth_;
  }
  void end(const EngineLock&) { --depth_; }  // who waits is told when the lock is given up
  // In the child of a fork, which has no other thread.
  void forget_others() { depth_ = holder_ == std::this_thread::get_id() ? depth_ : 0; }

 private:
  std::thread::id holder_;
  int depth_ = 0;
};

}  // namespace recoup::detail
