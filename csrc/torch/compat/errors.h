// How the engine's errors reach the program.
#pragma once

#include <c10/util/Exception.h>

#include "recoup/errors.h"

namespace recoup::detail {

// What code between an allocation and the op's caller sees: an ordinary out-of-memory error, with
// the report inside.
class PoolOutOfMemory : public c10::OutOfMemoryError {
 public:
  // `session`: whose budget it is; null when that no longer matters.
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

// The same inside of a kernel on a GPU. Not a c10::OutOfMemoryError: cuDNN's convolutions catch
// that one and try the next algorithm, which may give other bits than the one that would have run
// without a budget, and stay with it.
class KernelOutOfMemory : public c10::Error {
 public:
  KernelOutOfMemory(OutOfBudgetReport report, const void* session)
      : c10::Error({__func__, __FILE__, __LINE__}, report.to_string()),
        report_(std::move(report)),
        session_(session) {}
  // What the rest of us knows it as.
  [[nodiscard]] PoolOutOfMemory plain() const { return PoolOutOfMemory(report_, session_); }

 private:
  OutOfBudgetReport report_;
  const void* session_;
};

// Turns a report into the exception of the program's language. Must throw. Unset: PoolOutOfMemory.
using OutOfBudgetThrower = void (*)(const OutOfBudgetReport& report);
void set_out_of_budget_thrower(OutOfBudgetThrower thrower);
[[noreturn]] void throw_out_of_budget(const OutOfBudgetReport& report);

// What touching an evicted tensor says where recoup cannot bring it back: in an open scope, after
// one that could not be left for lack of room, and after one that nobody can complete any more.
const std::string& evicted_message();
const std::string& suspended_message();
const std::string& lost_message();

}  // namespace recoup::detail
