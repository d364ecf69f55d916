// KnownStep: a step that repeats, its plan, and what its runs have cost.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "csrc/steps/evict/planner.h"
#include "csrc/steps/track/step_log.h"

namespace recoup::detail {

// Costs of the last steps, each relative to the cost of the step's ops.
class RecentCosts {
 public:
  static constexpr std::size_t kEnough = 3;
  void add(double cost);
  void clear() { costs_.clear(); }
  [[nodiscard]] bool enough() const { return costs_.size() >= kEnough; }
  // 0: no step was measured.
  [[nodiscard]] double last() const { return costs_.empty() ? 0 : costs_.back(); }
  // The lower one of two in the middle; nullopt: no step was measured.
  [[nodiscard]] std::optional<double> median() const;

 private:
  static constexpr std::size_t kMost = 5;
  std::vector<double> costs_;
};

struct KnownStep {
  // State of the plan in use, or of the one set aside. Costs are in ns, or relative to the ops.
  struct InUse {
    double excess = 0;           // actual minus planned cost of steps
    double debt = 0;             // actual cost of steps minus that of the policy alone
    RecentCosts costs;           // of the steps with the plan
    bool tried = false;          // a run has followed the plan from the beginning
    bool arranges_once = false;  // after a run as planned there is nothing to arrange
  };
  // The first plan of a step with a spill tier, until the second one is compared with it.
  struct First {
    StepEvictions plan;
    double over_plan = 1;  // cost of its last run after the one that arranged blocks, over the plan
    bool replaced = false;  // the second plan is in use
  };
  // What is known in the current budget.
  struct InBudget {
    std::uint32_t overruns = 0;          // how often the excess was too large
    RecentCosts by_policy;               // costs of the steps without a plan
    std::optional<StepEvictions> aside;  // the plan that was set aside
    std::optional<First> first;
    bool planned_twice = false;  // a second plan has been asked for
    bool policy_known = false;   // the policy ran after steps with a plan, see watch_list
  };

  std::vector<StepHash> hashes;  // by op: hash of all previous ops and of the op's arguments
  StepHash hash = 0;
  std::optional<StepEvictions> evictions;  // the plan in use; nullopt: only the policy decides
  InUse in_use;
  InBudget in_budget;
  std::deque<std::vector<Nanoseconds>> runs;  // costs of the ops in the last runs
  bool again = false;                         // to be planned again
  bool in_work = false;                       // planning is under way
  StepHash successor = 0;                     // the step that followed it last time

  // Whether a second plan is awaited.
  [[nodiscard]] bool awaits_second() const { return in_budget.first && !in_budget.first->replaced; }
  // Whether the plan is in use, or was set aside because it costs more than the policy.
  [[nodiscard]] bool has(const std::optional<StepEvictions>& found) const;
  // Whether the plan that was found is to be used: a second one must cost less than the first one.
  // If it does not, it is no longer awaited.
  [[nodiscard]] bool accepts(const std::optional<StepEvictions>& found);
  // Another run of the step has ended, with these costs of its ops.
  void add_costs(const std::vector<Nanoseconds>& run);
  // By op: the lowest cost in the last runs.
  [[nodiscard]] std::vector<Nanoseconds> lowest_costs() const;
  // Uses a plan.
  void use(std::optional<StepEvictions> plan);
  // Uses the policy alone.
  void set_aside();
  // Uses the plan that was set aside.
  void use_aside();
  // The budget has changed.
  void change_budget();
};

// The most recently used first.
using KnownSteps = std::vector<std::unique_ptr<KnownStep>>;

}  // namespace recoup::detail
