#include "csrc/torch/session/budget_control.h"

#include <chrono>
#include <stdexcept>
#include <utility>

#include "csrc/base/check.h"
#include "csrc/torch/session/session.h"
#include "csrc/torch/storages/request.h"

namespace recoup::detail {
namespace {

// An op that runs for longer may wait for another process.
constexpr auto kLongestOp = std::chrono::milliseconds(100);

}  // namespace

void BudgetControl::set(Bytes budget) {
  const EngineLock lock(session_.mutex());
  if (session_.memory().capturing()) {
    throw std::runtime_error(
        "recoup: the budget cannot be changed while a CUDA graph is captured in it");
  }
  Engine& engine = session_.engine(lock);
  budget = session_.backend(lock).budget(budget);
  if (budget < engine.budget()) {
    session_.backend(lock).require_can_shrink();
    // Between ops, as kernels hold memory that cannot be moved.
    const Turn turn(session_, lock, /*next=*/true);
    if (budget < engine.budget()) {  // another thread may have set one meanwhile
      shrink(lock, budget);
      give_rest(lock);
      return;
    }
  }
  if (const Bytes now = engine.budget(); budget > now) {
    if (shared_) {
      shared_->force(budget);
    }
    grow(lock, budget);
  }
}

void BudgetControl::share(const std::string& file, Bytes total) {
  {
    const EngineLock lock(session_.mutex());
    if (total > session_.engine(lock).budget()) {
      throw std::invalid_argument("a shared budget is at most the budget of its scope");
    }
  }
  auto shared = std::make_unique<SharedBudget>(file, total);
  set(shared->part());
  const EngineLock lock(session_.mutex());
  shared_ = std::move(shared);
  session_.engine(lock).set_more(shared_.get());
}

bool BudgetControl::give(Bytes budget) {
  RECOUP_CHECK(shared_ != nullptr);
  if (!shared_->is_of_this_process()) {
    return false;
  }
  const EngineLock lock(session_.mutex());
  Engine& engine = session_.engine(lock);
  if (!session_.begin_turn_within(lock, kLongestOp)) {
    // The op may wait for memory of the process that this memory is for.
    if (engine.budget() <= budget || !engine.shrink_by_free(budget)) {
      return false;
    }
  } else {
    const Turn turn(session_, Turn::Begun{}, lock);
    try {
      if (budget < engine.budget()) {
        shrink(lock, budget);
      }
    } catch (const OutOfBudget&) {
      return false;
    }
  }
  give_rest(lock);
  return true;
}

// Gives the part of this process beyond its budget to the others.
void BudgetControl::give_rest(const EngineLock& lock) {
  if (shared_) {
    shared_->give(shared_->part() - session_.engine(lock).budget());
  }
}

void BudgetControl::grow(const EngineLock& lock, Bytes budget) {
  Engine& engine = session_.engine(lock);
  session_.backend(lock).back(session_.tensors().arena(), budget - engine.outside());
  session_.memory().publish_use(lock);
  engine.grow(budget);
}

void BudgetControl::shrink(const EngineLock& lock, Bytes budget) {
  Engine& engine = session_.engine(lock);
  const Request request(engine, session_.tensors().external(), "the change to a smaller budget");
  engine.shrink(budget);
}

}  // namespace recoup::detail
