// How the engine's errors reach the program.
#pragma once

#include <c10/util/Exception.h>

#include "recoup/errors.h"

namespace recoup::detail {

// The out-of-memory error that code between an allocation and the op's caller gets. It contains the
// report.
class PoolOutOfMemory : public c10::OutOfMemoryError {
 public:
  // `session`: the session whose budget was exceeded; null when that no longer matters.
  explicit PoolOutOfMemory(OutOfBudgetReport report, const void* session = nullptr)
      : c10::OutOfMemoryError({__func__, __FILE__, __LINE__}, report.to_string()),
        report_(std::move(report)),
        session_(session) {}
  [[nodiscard]] const OutOfBudgetReport& report() const { return report_; }
  [[nodiscard]] bool is_of(const void* session) const { return session_ == session; }

 private:
  OutOfBudgetReport report_;
  const void* session_;
};

// PoolOutOfMemory inside a GPU kernel. It is no c10::OutOfMemoryError: cuDNN's convolutions catch
// that one, try the next algorithm and keep using it. That algorithm may give other bits than the
// one that would have run without a budget.
class KernelOutOfMemory : public c10::Error {
 public:
  KernelOutOfMemory(OutOfBudgetReport report, const void* session)
      : c10::Error({__func__, __FILE__, __LINE__}, report.to_string()),
        report_(std::move(report)),
        session_(session) {}
  // The error as recoup handles it outside of kernels.
  [[nodiscard]] PoolOutOfMemory plain() const { return PoolOutOfMemory(report_, session_); }

 private:
  OutOfBudgetReport report_;
  const void* session_;
};

// Converts a report into an exception of the program's language. Must throw. Unset:
// PoolOutOfMemory.
using OutOfBudgetThrower = void (*)(const OutOfBudgetReport& report);
void set_out_of_budget_thrower(OutOfBudgetThrower thrower);
[[noreturn]] void throw_out_of_budget(const OutOfBudgetReport& report);

// Messages for an access to an evicted tensor that recoup cannot restore: in an open scope, after a
// scope whose exit lacked room, and after a scope that can no longer be completed.
const std::string& evicted_message();
const std::string& suspended_message();
const std::string& lost_message();

}  // namespace recoup::detail
