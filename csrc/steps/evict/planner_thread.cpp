#include "csrc/steps/evict/planner_thread.h"

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <utility>

#include "csrc/base/at_end.h"
#include "csrc/base/check.h"

namespace recoup::detail {
namespace {

constexpr int kLowestPriority = 19;
constexpr const char* kName = "recoup-planner";  // as top and /proc show it: at most 15 characters

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
  has_first_.store(false, std::memory_order_relaxed);
  stop_.store(false, std::memory_order_relaxed);
  done_.store(false, std::memory_order_relaxed);
  const SignalsBlocked blocked;
  AtEnd not_started([this] { done_.store(true, std::memory_order_relaxed); });
  thread_ = std::thread([this] { run(); });
  not_started.cancel();
}

void PlannerThread::run() noexcept {
  // On Linux these affect only this thread. If the priority is not permitted, planning disturbs the
  // program a little more.
  (void)pthread_setname_np(pthread_self(), kName);
  (void)setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kLowestPriority);
  try {
    const auto publish = [this](const StepEvictions& first) {
      first_ = {.hash = task_.hash, .evictions = first};
      has_first_.store(true, std::memory_order_release);
    };
    found_ = {.hash = task_.hash,
              .evictions = plan_step(task_.step, task_.before, task_.work, &stop_, publish)};
  } catch (const PlanCancelled&) {
  } catch (...) {
    error_ = std::current_exception();
  }
  done_.store(true, std::memory_order_release);
}

std::optional<PlannerThread::Found> PlannerThread::take() {
  if (!busy()) {
    return std::nullopt;
  }
  if (working()) {
    return has_first_.exchange(false, std::memory_order_acquire) ? std::optional(std::move(first_))
                                                                 : std::nullopt;
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
