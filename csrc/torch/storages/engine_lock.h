// The lock of an engine, and the exclusive right of a thread to run an op.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
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

  // Called directly only to release the lock during a kernel and to hold it during fork. All other
  // code uses EngineLock. A thread that holds the lock must not take it again. The usual cause
  // would be a storage of the program that dies under the lock instead of in the graveyard. This is
  // reported as a broken invariant; it does not become a deadlock.
  void lock() {
    if (!mutex_.try_lock()) [[unlikely]] {
      wait();
    }
    holder_.store(this_thread(), std::memory_order_relaxed);
  }
  // Does not empty the graveyard.
  void unlock() {
    holder_.store(nullptr, std::memory_order_relaxed);
    mutex_.unlock();
  }

  // Releases the lock until done(), which another thread makes true under the lock.
  template <class Done>
  void wait_until(const EngineLock&, Done&& done) {
    wait_while_locked(done, [this](auto& held) {
      changed_.wait(held);
      return true;
    });
  }
  // Waits for at most `time`. False: the time is over, and done() is false.
  template <class Done>
  [[nodiscard]] bool wait_for(const EngineLock&, Done&& done, std::chrono::nanoseconds time) {
    const auto end = std::chrono::steady_clock::now() + time;
    return wait_while_locked(done, [this, end](auto& held) {
      return changed_.wait_until(held, end) == std::cv_status::no_timeout;
    });
  }

  // To be called in the child of a fork, which has no other thread, with the lock held. Another
  // thread of the parent may have been in a call of the condition variable, which has a mutex.
  void forget_others() {
    std::construct_at(&changed_);
    waiting_ = 0;
  }

  // To be used with the lock held.
  [[nodiscard]] Graveyard& graveyard() { return graveyard_; }

 private:
  friend class EngineLock;
  // wait(held) waits for a change; false: no longer.
  template <class Done, class Wait>
  bool wait_while_locked(Done&& done, Wait&& wait) {
    std::unique_lock<EngineMutex> held(*this, std::adopt_lock);
    ++waiting_;
    bool goes_on = true;
    while (goes_on && !done()) {
      held.unlock();
      {
        const WithoutInterpreter waiting;
        held.lock();
        if (!done()) {
          goes_on = wait(held);
        }
        held.unlock();
      }
      held.lock();
    }
    --waiting_;
    held.release();
    return done();
  }
  void unlock_and_bury();
  void wait();
  // Whether the calling thread holds the lock.
  [[nodiscard]] bool is_mine() const {
    return holder_.load(std::memory_order_relaxed) == this_thread();
  }
  // A unique address of the thread.
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

// Holds the lock. The destructor releases it and then destroys the objects that died under it.
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

// The right to run an op, its kernel included. Only one thread of the scope may have it, since the
// engine knows one running op. An op within an op's kernel belongs to the same turn.
class Turns {
 public:
  // Waits until no other thread has the turn and busy() is false. `next`: gets the turn before all
  // threads that ask without it, even if they run one op after the other.
  template <class Busy>
  void begin(EngineMutex& mutex, const EngineLock& lock, Busy&& busy, bool next = false) {
    const auto free = [&] { return is_free(next) && !busy(); };
    next_ += next ? 1 : 0;
    if (!free()) [[unlikely]] {
      mutex.wait_until(lock, free);
    }
    next_ -= next ? 1 : 0;
    take();
  }
  // With `next`, waiting for at most `time`. False: the thread does not have the turn.
  template <class Busy>
  [[nodiscard]] bool begin_within(EngineMutex& mutex, const EngineLock& lock, Busy&& busy,
                                  std::chrono::nanoseconds time) {
    ++next_;
    const bool has = mutex.wait_for(lock, [&] { return is_free(/*next=*/true) && !busy(); }, time);
    --next_;
    if (has) {
      take();
    }
    return has;
  }
  void end(const EngineLock&) { --depth_; }  // releasing the lock notifies waiting threads
  [[nodiscard]] bool belongs_to_this_thread() const {
    return depth_ > 0 && holder_ == std::this_thread::get_id();
  }
  // To be called in the child of a fork, which has no other thread.
  void forget_others() {
    depth_ = holder_ == std::this_thread::get_id() ? depth_ : 0;
    next_ = 0;
  }

 private:
  [[nodiscard]] bool is_free(bool next) const {
    return belongs_to_this_thread() || (depth_ == 0 && (next || next_ == 0));
  }
  void take() {
    holder_ = std::this_thread::get_id();
    ++depth_;
  }

  std::thread::id holder_;
  int depth_ = 0;
  int next_ = 0;  // threads that wait with `next`
};

}  // namespace recoup::detail
