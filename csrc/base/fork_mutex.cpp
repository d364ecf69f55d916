#include "csrc/base/fork_mutex.h"

#include <pthread.h>

#include <atomic>

#include "csrc/base/check.h"

namespace recoup::detail {
namespace {

// A list of all mutexes, the newest first.
std::atomic<ForkMutex*> newest{nullptr};
// The newest one when the process began to fork. Others may be made meanwhile.
ForkMutex* newest_at_fork = nullptr;

}  // namespace

ForkMutex::ForkMutex() : next_(newest.load(std::memory_order_acquire)) {
  while (!newest.compare_exchange_weak(next_, this, std::memory_order_acq_rel)) {
  }
}

void ForkMutex::watch_forks() {
  static const int registered =
      pthread_atfork(&ForkMutex::before_fork, &ForkMutex::after_fork, &ForkMutex::after_fork);
  RECOUP_CHECK(registered == 0);
}

void ForkMutex::before_fork() {
  ForkMutex* const first = newest.load(std::memory_order_acquire);
  for (ForkMutex* each = first; each != nullptr; each = each->next_) {
    each->lock();
  }
  newest_at_fork = first;
}

void ForkMutex::after_fork() {
  for (ForkMutex* each = newest_at_fork; each != nullptr; each = each->next_) {
    each->unlock();
  }
}

}  // namespace recoup::detail
