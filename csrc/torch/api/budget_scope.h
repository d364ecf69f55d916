// The life of a session: when it is in force, on which thread, and how it ends.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>

#include "csrc/torch/session/gpu_scope.h"
#include "csrc/torch/session/session.h"
#include "recoup/options.h"

namespace recoup::detail {

class BudgetScope {
 public:
  // Throws what Session does.
  BudgetScope(const Options& options, c10::Device device);
  // As `abandon`.
  ~BudgetScope();
  BudgetScope(const BudgetScope&) = delete;
  BudgetScope& operator=(const BudgetScope&) = delete;

  [[nodiscard]] Session& session() { return session_; }
  [[nodiscard]] const Session& session() const { return session_; }
  // At work, or suspended.
  [[nodiscard]] bool in_force() const { return state_ != State::kStopped; }

  // Both on the same thread. `enter` throws std::logic_error when a session is at work on the
  // device.
  void enter();
  // Makes every live tensor resident and stops. Throws OutOfBudget; then the session is suspended:
  // it sees no more ops, and what is evicted says so when it is touched. After grow, leave may be
  // tried again.
  void leave();
  // Stops as it is: what is evicted stays so for ever. False, and it is suspended only, when that
  // is asked of another thread than the one whose scope it is: that one may be in an op, so the
  // scope must not be destroyed.
  [[nodiscard]] bool abandon();

 private:
  enum class State : std::uint8_t { kStopped, kActive, kSuspended };

  [[nodiscard]] bool on_entering_thread() const;
  [[nodiscard]] bool stop_if_materialized();
  void suspend();
  void stop(const EngineLock& lock);
  // Calls act(lock) in a Closing; what dies of it is buried behind that.
  template <class Act>
  void while_nobody_visits(Act&& act);

  Session session_;
  State state_ = State::kStopped;
  std::shared_ptr<GpuScope> gpu_scope_;
};

}  // namespace recoup::detail
