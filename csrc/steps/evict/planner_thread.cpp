#include "csrc/steps/evict/planner_thread.h"

#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <utility>

#include "csrc/base/at_end.h"
#include "csrc/base/check.h"

namespace recoup::detail {
namespace {

constexpr int kLowestPriority = 19;

// Signals are for the program's threads. A new thread inherits the signal mask of its creator.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

void PlannerThread::start(Task task) {
  RECOUP_CHECK(!busy());
  if (for_good_.load()) {
    return;
  }
  task_ = std::move(task);
  found_ = {};
  error_ = nullptr;
  stop_.store(false, std::memory_order_relaxed);
  done_.store(false, std::memory_order_relaxed);
  const SignalsBlocked blocked;
  AtEnd not_started([this] { done_.store(true, std::memory_order_relaxed); });
  thread_ = std::thread([this] { run(); });
  not_started.cancel();
}

void PlannerThread::run() noexcept {
  // On Linux this affects only this thread. If it is not permitted, planning disturbs the program a
  // little more.
  (void)setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kLowestPriority);
  try {
    found_ = {.hash = task_.hash,
              .evictions = plan_step(task_.step, task_.before, task_.work, &stop_)};
  } catch (const PlanCancelled&) {
  } catch (...) {
    error_ = std::current_exception();
  }
  done_.store(true, std::memory_order_release);
}

std::optional<PlannerThread::Found> PlannerThread::take() {
  if (!busy() || working()) {
    return std::nullopt;
  }
  thread_.join();
  task_ = {};
  if (error_) {
    std::rethrow_exception(std::exchange(error_, nullptr));
  }
  return std::move(found_);
}

void PlannerThread::cancel() noexcept {
  if (busy()) {
    stop_.store(true, std::memory_order_relaxed);
    thread_.join();
    task_ = {};
    error_ = nullptr;
  }
}

// Does not join the thread: another thread may be about to do that.
void PlannerThread::stop_for_good() noexcept {
  for_good_.store(true);
  stop_.store(true);
  while (working()) {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

}  // namespace recoup::detail
