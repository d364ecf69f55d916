#include "csrc/torch/compat/errors.h"

#include <atomic>

namespace recoup::detail {
namespace {
std::atomic<OutOfBudgetThrower> thrower{nullptr};
}  // namespace

void set_out_of_budget_thrower(OutOfBudgetThrower wanted) { thrower = wanted; }

void throw_out_of_budget(const OutOfBudgetReport& report) {
  if (const OutOfBudgetThrower chosen = thrower) {
    chosen(report);
  }
  throw PoolOutOfMemory(report);
}

const std::string& evicted_message() {
  static const std::string message =
      "recoup: this tensor's bytes are evicted, and it was accessed on a thread outside the "
      "budget scope or by code that recoup cannot see. Start the thread inside the scope, or run "
      "its work in `with recoup.carry():`; or, on the scope's thread, call "
      "recoup.materialize(tensor) or hold recoup.pin(tensor) before you hand the tensor over";
  return message;
}

const std::string& suspended_message() {
  static const std::string message =
      "recoup: this tensor's bytes are evicted, and its budget scope ended without enough memory "
      "to restore them. Nothing is lost: run.resume(budget) with a larger budget completes the "
      "scope's exit; recoup.materialize(tensor) works in an open scope only";
  return message;
}

const std::string& lost_message() {
  static const std::string message =
      "recoup: this tensor's bytes are lost: they were evicted when the run of its suspended "
      "budget scope was deleted without run.resume(budget). Compute the tensor again";
  return message;
}

}  // namespace recoup::detail
