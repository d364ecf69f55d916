// BudgetControl: changes of a session's budget.
#pragma once

#include <memory>
#include <string>

#include "csrc/share/shared_budget.h"
#include "csrc/torch/storages/engine_lock.h"
#include "recoup/types.h"

namespace recoup::detail {

class Session;

// Methods take the session's lock.
class BudgetControl {
 public:
  // The session must outlive all calls, but end before this object.
  explicit BudgetControl(Session& session) : session_(session) {}

  void set(Bytes budget);  // as Budget::set_budget
  // As the functions of Budget.
  void share(const std::string& file, Bytes total);
  [[nodiscard]] bool give(Bytes budget);
  // Null: the budget is not shared.
  [[nodiscard]] SharedBudget* shared() { return shared_.get(); }

 private:
  void grow(const EngineLock& lock, Bytes budget);
  void shrink(const EngineLock& lock, Bytes budget);
  void give_rest(const EngineLock& lock);

  Session& session_;
  std::unique_ptr<SharedBudget> shared_;  // its memory is free for others when the engine has ended
};

}  // namespace recoup::detail
