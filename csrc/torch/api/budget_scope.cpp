#include "csrc/torch/api/budget_scope.h"

#include <pthread.h>

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "csrc/base/check.h"
#include "csrc/base/fork_mutex.h"
#include "csrc/base/strings.h"
#include "csrc/torch/api/math_functions.h"
#include "csrc/torch/calls/dispatch.h"
#include "csrc/torch/compat/errors.h"
#include "csrc/torch/compat/generators.h"
#include "csrc/torch/compat/hook.h"
#include "csrc/torch/compat/scope_thread.h"
#include "csrc/torch/frames/access_hooks.h"
#include "csrc/torch/ops/traits_table.h"
#include "csrc/torch/session/allocator.h"
#include "csrc/torch/session/evicted_access.h"
#include "csrc/torch/session/sessions.h"

namespace recoup::detail {
namespace {

StorageHooks session_hooks() {
  return {.pool = &pool_delete,
          .overflow = &delete_overflow,
          .evicted = &evicted_delete,
          .written = &on_mutable_access,
          .defined = &on_definition,
          .met = &on_meeting,
          .overflow_window = &overflow_window_at,
          .allocator_of_cpu = pool_allocator()};
}

// Why no other session can be entered on a device.
std::string already_active(c10::Device device) {
  const Visit visit;
  const Session* const active = Sessions::on(device);
  const bool by_other = active != nullptr && active->thread() != std::this_thread::get_id();
  return str_cat("recoup: a budget is already active on ", device.str(),
                 by_other
                     ? ": another thread has entered it, and a device has one budget at a time. "
                       "Enter one budget before the threads start, which are then in it, or wait "
                       "until the other thread has left its scope"
                     : ", and budgets cannot be nested: leave its scope first, or change it with "
                       "run.set_budget");
}

// Whether this thread has entered one of the active sessions.
bool entered_here() {
  const Visit visit;
  bool found = false;
  Sessions::for_each(
      [&](const Session& session) { found |= session.thread() == std::this_thread::get_id(); });
  return found;
}

// A forked child (a DataLoader's worker) goes on with the sessions, in its own copy of the arenas.
// The locks must not be held by a thread that the child does not have.
void lock_before_fork() {
  lock_generator_for_fork();
  Visit::begin();
  Sessions::for_each([](Session& session) {
    session.mutex().lock();
    session.observers().cancel_planning();  // the child would lack the planning thread
  });
}
void unlock_sessions() {
  Sessions::for_each([](const Session& session) { session.mutex().unlock(); });
  Visit::end();
}
void unlock_in_parent() {
  unlock_sessions();
  unlock_generator_in_parent();
}
// Runs before the data that the planning thread reads is destroyed.
void stop_planning_at_exit() {
  const Visit visit;
  Sessions::for_each([](Session& session) { session.observers().stop_planning_for_good(); });
}
void unlock_in_child() {
  Visit::forget_others();
  Sessions::for_each([](Session& session) { session.forget_other_threads(); });
  Sessions::for_each([](Session& session) { session.leave_collectives_to_parent(); });
  unlock_sessions();
  renew_generator_in_child();
}

}  // namespace

BudgetScope::BudgetScope(const Options& options, c10::Device device)
    : session_(options, device, session_hooks()),
      route_(
          session_.tensors().backend().make_route(session_.memory(), session_.tensors().arena())) {}

BudgetScope::~BudgetScope() { (void)abandon(); }

bool BudgetScope::on_entering_thread() const {
  return std::this_thread::get_id() == session_.thread();
}

void BudgetScope::enter() {
  // In this order: a thread with a lock of a scope may take a ForkMutex, or run a kernel, which may
  // wait for overflow memory.
  OverflowWindow::watch_forks();
  ForkMutex::watch_forks();
  (void)gate_works();  // locks the generator, which no thread may do while it has a session's lock
  static const int registered =
      pthread_atfork(&lock_before_fork, &unlock_in_parent, &unlock_in_child);
  static const int at_exit = std::atexit(&stop_planning_at_exit);
  RECOUP_CHECK(registered == 0 && at_exit == 0);
  watch_ops();
  answer_questions_outside_ops();
  Hook::watch_new_ops();
  (void)choose_math_kernels();
  if (!Sessions::any()) {
    TraitsTable::instance().look_for_overrides();
  }
  joined_ = on_scope_thread() && !entered_here();
  session_.set_thread(std::this_thread::get_id());
  if (!Sessions::enter(session_)) {
    throw std::logic_error(already_active(session_.device()));
  }
  Sessions::end_suspended(session_);
  state_ = State::kActive;
  Visit::begin_uncounted();  // until the session is suspended
  route_->enter();
  set_scope_thread(true);
  session_.overflow().restore();
}

void BudgetScope::leave() {
  if (state_ == State::kSuspended) {
    enter();
  }
  if (!on_entering_thread()) {
    throw std::logic_error("recoup: a budget must be left on the thread that entered it");
  }
  try {
    do {
      session_.materialize_all();
      session_.delay().wait();
    } while (!stop_if_materialized());
    session_.forget_collectives();
  } catch (...) {
    session_.wait_for_device();
    // Other threads that carry the scope finish their op first: recoup does not receive their next
    // one.
    while_no_visitors([this](const EngineLock& lock) {
      suspend();
      session_.observers()
          .cancel_planning();  // the fork handler does not reach a suspended session
      session_.storages(lock).tell_evicted(suspended_message());
    });
    throw;
  }
}

template <class Act>
void BudgetScope::while_no_visitors(Act&& act) {
  Graveyard dead;
  const Closing no_visitors;
  const EngineLock lock(session_.mutex());
  act(lock);
  std::swap(dead, session_.mutex().graveyard());
}

// Other threads that carry the scope may have made tensors since they were materialized.
bool BudgetScope::stop_if_materialized() {
  while_no_visitors([this](const EngineLock& lock) {
    if (session_.engine(lock).user().materialized()) {
      stop(lock);
    }
  });
  return !in_force();
}

bool BudgetScope::abandon() {
  if (!in_force()) {
    return true;
  }
  if (state_ == State::kActive && !on_entering_thread()) {
    suspend();
    const EngineLock lock(session_.mutex());
    session_.wait_for_device();
    session_.observers().cancel_planning();
    return false;
  }
  while_no_visitors([this](const EngineLock& lock) { stop(lock); });
  session_.forget_collectives();
  return true;
}

void BudgetScope::suspend() {
  Sessions::leave(session_);
  if (on_entering_thread()) {
    Visit::end_uncounted();
    set_scope_thread(joined_ || entered_here());
  }
  route_->leave();
  Sessions::suspend(session_);
  state_ = State::kSuspended;
}

// Call it in a Closing: no thread looks up the session or its memory until that ends.
void BudgetScope::stop(const EngineLock& lock) {
  if (state_ == State::kActive) {
    suspend();
  }
  route_->close();
  session_.observers().cancel_planning();
  session_.wait_for_device();          // no later access is ordered after pending fetches
  session_.engine(lock).end_copies();  // while their destination still exists
  session_.disown_evicted(lock);
  const std::vector<BlockView> blocks = session_.engine(lock).pool().taken();
  Sessions::end_suspended(session_);
  route_->retire(session_.tensors().take_arena(), blocks);
  state_ = State::kStopped;
}

}  // namespace recoup::detail
