// CaughtFailure: an allocation that failed in a running kernel.
#pragma once

#include <atomic>
#include <utility>

#include "csrc/torch/compat/settings.h"
#include "recoup/errors.h"

namespace recoup::detail {

// Note [Caught errors]
// ~~~~~~~~~~~~~~~~~~~~
// Some kernels catch the error of an allocation and go on with another algorithm, which gives other
// bits. PyTorch's matrix product then also switches oneDNN off for the whole process. So the
// failure is kept where it happens. However the kernel ends, it counts as out of memory, and the
// process has the settings from before. These are taken when the kernel begins, or, for an op of
// ATen, whose kernels change no setting but in this case, when the allocation fails.
class CaughtFailure {
 public:
  // `before`: the settings from before the kernel; null: those at the failure.
  explicit CaughtFailure(const Settings* before = nullptr) : settings_(before) {}
  CaughtFailure(const CaughtFailure&) = delete;
  CaughtFailure& operator=(const CaughtFailure&) = delete;

  // Call it under the engine's lock.
  void note(const OutOfBudgetReport& report, const Settings* now) {
    if (!noted()) {
      report_ = report;
      settings_ = settings_ == nullptr ? now : settings_;
      noted_.store(true, std::memory_order_release);
    }
  }
  [[nodiscard]] bool noted() const { return noted_.load(std::memory_order_acquire); }
  [[nodiscard]] OutOfBudgetReport take() {
    noted_.store(false, std::memory_order_relaxed);
    return std::move(report_);
  }
  // To be called while the thread holds no lock of recoup's.
  void restore_settings() const {
    if (settings_ != nullptr) {
      settings_->restore_process();
    }
  }

  // The failure of this thread's kernel; null: none.
  [[nodiscard]] static CaughtFailure*& of_this_thread() {
    thread_local CaughtFailure* failure = nullptr;
    return failure;
  }

 private:
  OutOfBudgetReport report_;  // valid if noted
  const Settings* settings_;  // null: not known
  std::atomic<bool> noted_{false};
};

// While it exists, failures on this thread are noted in a CaughtFailure.
class FailureNoted {
 public:
  explicit FailureNoted(CaughtFailure& failure)
      : outer_(std::exchange(CaughtFailure::of_this_thread(), &failure)) {}
  ~FailureNoted() { CaughtFailure::of_this_thread() = outer_; }
  FailureNoted(const FailureNoted&) = delete;
  FailureNoted& operator=(const FailureNoted&) = delete;

 private:
  CaughtFailure* const outer_;
};

}  // namespace recoup::detail
