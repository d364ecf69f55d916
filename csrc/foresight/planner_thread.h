// PlannerThread: plans for one step while the program goes on.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <optional>
#include <thread>

#include "csrc/foresight/planner.h"

namespace recoup::detail {

// Its methods are called by one thread at a time. What it starts takes no lock, has the lowest
// priority that there is, and gets no signal.
class PlannerThread {
 public:
  struct Task {
    RecordedStep step;
    EvictionList before;
    std::int64_t work = 0;
    StepHash hash = 0;  // of the step
  };
  struct Found {
    StepHash hash = 0;  // of the task's step
    std::optional<StepEvictions> evictions;
  };

  PlannerThread() = default;
  ~PlannerThread() { cancel(); }
  PlannerThread(const PlannerThread&) = delete;
  PlannerThread& operator=(const PlannerThread&) = delete;

  // It has a task that nobody has taken the result of.
  [[nodiscard]] bool busy() const { return thread_.joinable(); }
  // And works on it.
  [[nodiscard]] bool working() const { return !done_.load(std::memory_order_acquire); }
  // It must not be busy. Throws std::system_error when there can be no thread; then it is not.
  void start(Task task);
  // Nothing until it is done. Throws what planning threw.
  [[nodiscard]] std::optional<Found> take();
  // Waits until it has stopped, which takes as long as a replay of a simulation.
  void cancel() noexcept;
  // The same when the process ends, whatever other threads do: it is not to start again.
  void stop_for_good() noexcept;

 private:
  void run() noexcept;

  Task task_;
  Found found_;
  std::exception_ptr error_;
  std::atomic<bool> stop_{false};
  std::atomic<bool> done_{true};
  std::atomic<bool> for_good_{false};
  std::thread thread_;
};

}  // namespace recoup::detail
