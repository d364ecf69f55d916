// CaughtFailure: an allocation that failed in the running kernel.
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
// settings of the process are those from before the failure.
//
// One kernel runs at a time, but its threads may allocate.
class CaughtFailure {
 public:
  // Call it under the engine's lock.
  void note(const OutOfBudgetReport& report, c10::DeviceType device) {
    if (!noted()) {
      report_ = report;
      settings_ = &Settings::current(device);
      noted_.store(true, std::memory_order_release);
    }
  }
  [[nodiscard]] bool noted() const { return noted_.load(std::memory_order_acquire); }
  void forget() { noted_.store(false, std::memory_order_relaxed); }
  // Restores the settings. To be called while the thread holds no lock of recoup's.
  [[nodiscard]] OutOfBudgetReport take() {
    settings_->restore_process();
    forget();
    return std::move(report_);
  }

 private:
  OutOfBudgetReport report_;            // valid if noted
  const Settings* settings_ = nullptr;  // valid if noted
  std::atomic<bool> noted_{false};
};

}  // namespace recoup::detail
