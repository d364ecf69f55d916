// The life of a session: when it is in force, on which thread, and how it ends.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>

#include "csrc/torch/backend/memory_route.h"
#include "csrc/torch/session/budget_control.h"
#include "csrc/torch/session/session.h"
#include "recoup/options.h"

namespace recoup::detail {

class BudgetScope {
 public:
  // Throws what Session's constructor throws.
  BudgetScope(const Options& options, c10::Device device);
  // Calls `abandon`.
  ~BudgetScope();
  BudgetScope(const BudgetScope&) = delete;
  BudgetScope& operator=(const BudgetScope&) = delete;

  [[nodiscard]] BudgetControl& budget() { return budget_; }
  [[nodiscard]] Session& session() { return session_; }
  [[nodiscard]] const Session& session() const { return session_; }
  // Active or suspended.
  [[nodiscard]] bool in_force() const { return state_ != State::kStopped; }

  // enter() and leave() must be called on the same thread. `enter` throws std::logic_error if the
  // device has an active session.
  void enter();
  // Makes every live tensor resident and ends the session. Throws OutOfBudget; then the session is
  // suspended: it receives no more ops, and an access to an evicted tensor raises an error. After
  // grow, leave may be tried again.
  void leave();
  // Ends the session at once: evicted bytes are lost. If another thread than the scope's owner
  // calls it, it only suspends the session and returns false: the owner may be in an op, so the
  // scope must not be destroyed.
  [[nodiscard]] bool abandon();

 private:
  enum class State : std::uint8_t { kStopped, kActive, kSuspended };

  [[nodiscard]] bool on_entering_thread() const;
  [[nodiscard]] bool stop_if_materialized();
  void suspend();
  void stop(const EngineLock& lock);
  // Calls act(lock) in a Closing; objects that die meanwhile are destroyed after it.
  template <class Act>
  void while_no_visitors(Act&& act);

  BudgetControl budget_{session_};
  Session session_;
  State state_ = State::kStopped;
  bool joined_ = false;  // whether the thread that entered it belonged to a scope before
  const std::unique_ptr<MemoryRoute> route_;
};

}  // namespace recoup::detail
