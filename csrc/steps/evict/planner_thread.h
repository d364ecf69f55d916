// PlannerThread: plans for one step while the program runs.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <optional>
#include <thread>

#include "csrc/steps/evict/planner.h"
#include "recoup/api.h"

namespace recoup::detail {

// Only one thread at a time may call its methods. The planning thread takes no lock, has the lowest
// priority, and receives no signals.
class PlannerThread {
 public:
  struct Task {
    RecordedStep step;
    EvictionList before;
    std::int64_t work = 0;
    StepHash hash = 0;  // hash of the step
  };
  struct Found {
    StepHash hash = 0;  // hash of the task's step
    std::optional<StepEvictions> evictions;
  };

  PlannerThread() = default;
  ~PlannerThread() { cancel(); }
  PlannerThread(const PlannerThread&) = delete;
  PlannerThread& operator=(const PlannerThread&) = delete;

  // Whether there is a task whose result has not been taken.
  [[nodiscard]] bool busy() const { return thread_.joinable(); }
  // Whether the thread is still working on it.
  [[nodiscard]] bool working() const { return !done_.load(std::memory_order_acquire); }
  // Must not be called while busy. Throws std::system_error if no thread can be started; it is then
  // not busy.
  void start(Task task);
  // The next result; nullopt until it is available. While the thread searches for a better list,
  // the policy's own evictions can be a first result, after which the thread stays busy. Throws
  // what planning threw.
  [[nodiscard]] std::optional<Found> take();
  // Stops the task and waits for it, at most as long as one replay of a simulation takes.
  RECOUP_API void cancel() noexcept;
  // Cancels when the process exits, even while other threads call methods. No task starts
  // afterwards.
  void stop_for_good() noexcept;

 private:
  void run() noexcept;

  Task task_;
  Found first_;  // written once, before has_first_ is set
  std::atomic<bool> has_first_{false};
  Found found_;
  std::exception_ptr error_;
  std::atomic<bool> stop_{false};
  std::atomic<bool> done_{true};
  std::atomic<bool> for_good_{false};
  std::thread thread_;
};

}  // namespace recoup::detail
