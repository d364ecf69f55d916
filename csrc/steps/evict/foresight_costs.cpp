// What steps cost with a list and without: Note [A list that costs more than was planned].
#include <algorithm>
#include <bit>
#include <utility>

#include "csrc/steps/evict/foresight.h"

namespace recoup::detail {
namespace {

// If steps cost more than kOverrun times the plan, the excess is summed over steps, and cheaper
// steps reduce the sum. The step is planned again when the sum exceeds this share of its planned
// cost.
constexpr double kOverrun = 1.05;
constexpr double kMostExcess = 0.1;
// The cost with a list minus that of the policy alone is summed in the same way. The list is set
// aside when the sum exceeds kMostDebt times the cost of the policy alone, or when its last steps
// cost kSlower times that of the policy's last steps.
constexpr double kMostDebt = 3;
constexpr double kSlower = 1.02;
// A plan costs clearly less than the policy if it costs at most this multiple of it.
constexpr double kClearlyLess = 0.9;

}  // namespace

double Foresight::search_cost() const {
  return static_cast<double>(
      search_price(engine_.search_work().plans - plans_before_, move_searches_).count());
}

double Foresight::op_cost() const {
  double sum = 0;
  for (const Nanoseconds cost : costs_) {
    sum += static_cast<double>(cost.count());
  }
  return sum;
}

double Foresight::relative_cost() const {
  return (step_cost() + search_cost()) / std::max(1.0, op_cost());
}

double Foresight::over_plan(const KnownStep& step) const {
  return step_cost() / static_cast<double>(
                           std::max<std::int64_t>(1, step.evictions->expected.at(costs_).count()));
}

// Compares the cost of a step that has ended with its plan.
void Foresight::watch(KnownStep& step) {
  const auto place = std::find_if(known_.begin(), known_.end(),
                                  [&](const auto& each) { return each.get() == &step; });
  std::rotate(known_.begin(), place, place + 1);
  if (!list_used_) {
    measure_policy(step);
  }
  if (following_ != &step || !followed_all_) {
    return;
  }
  const double cost = step_cost();
  ++counts_.followed_steps;
  counts_.followed_expected_ns += step.evictions->expected.at(costs_).count();
  counts_.followed_cost_ns += static_cast<std::int64_t>(cost);
  if (settings_.recorded) {
    return;
  }
  // The first run with a plan of blocks begins with moving them to where the plan has them.
  if (!std::exchange(step.in_use.tried, true) && !step.evictions->blocks.empty()) {
    plan_twice(step);
    return;
  }
  if (step.awaits_second()) {
    step.in_budget.first->over_plan = over_plan(step);
  }
  if (!step.in_work) {
    watch_list(step, cost);
  }
}

// A plan with copies depends on where values were when the step began. A second one is made from a
// run that followed the first.
void Foresight::plan_twice(KnownStep& step) {
  if (has_tier() && !std::exchange(step.in_budget.planned_twice, true)) {
    step.in_budget.first = {.plan = *step.evictions};
    step.again = true;
    fruitless_ = 0;
  }
}

// The second plan's second run must not cost more than the first plan's last run, relative to what
// the plans cost at current costs of the ops.
bool Foresight::goes_back(KnownStep& step) {
  if (!step.in_budget.first || !step.in_budget.first->replaced) {
    return false;
  }
  KnownStep::First first = *std::exchange(step.in_budget.first, std::nullopt);
  const std::vector<Nanoseconds> costs = step.lowest_costs();
  const auto cost = [&](const StepEvictions& plan, double over_plan) {
    return over_plan * static_cast<double>(plan.expected.at(costs).count());
  };
  if (cost(*step.evictions, over_plan(step)) <= cost(first.plan, first.over_plan)) {
    return false;
  }
  put(step, std::move(first.plan));
  return true;
}

void Foresight::watch_list(KnownStep& step, double cost) {
  const double ops = op_cost();
  const double all = cost + search_cost();
  if (goes_back(step)) {
    return;
  }
  step.in_use.costs.add(relative_cost());
  if (std::optional<double> by_policy = policy_cost(step)) {
    if (!step.evictions->blocks.empty()) {
      *by_policy += kMoreWithPlaces;
    }
    step.in_use.debt = std::max(0.0, step.in_use.debt + all - *by_policy * ops);
    // With a tier the policy costs less with each step, because it learns when values are used. If
    // the last step before the plan cost little more than those with it, it is measured again.
    const bool close = has_tier() && !step.evictions->blocks.empty() &&
                       step.in_use.costs.enough() &&
                       *step.in_use.costs.median() > kClearlyLess * step.in_budget.by_policy.last();
    if (close && !std::exchange(step.in_budget.policy_known, true)) {
      set_aside(step);
      return;
    }
    const bool slower =
        step.in_use.costs.enough() && *step.in_use.costs.median() > kSlower * *by_policy;
    if (slower || step.in_use.debt > kMostDebt * *by_policy * ops) {
      ++counts_.given_up_lists;
      set_aside(step);
      return;
    }
  }
  const auto expected = static_cast<double>(step.evictions->expected.at(costs_).count());
  step.in_use.excess = std::max(0.0, step.in_use.excess + cost - kOverrun * expected);
  if (step.in_use.excess > kMostExcess * expected) {
    step.in_use.excess = 0;
    if (std::has_single_bit(++step.in_budget.overruns)) {
      step.again = true;
      fruitless_ = 0;
    }
  }
}

std::optional<double> Foresight::policy_cost(const KnownStep& step) const {
  const double ops = op_cost();
  if (const std::optional<double> measured = step.in_budget.by_policy.median();
      measured || ops <= 0) {
    return measured;
  }
  if (step.evictions->by_policy) {
    return static_cast<double>(step.evictions->by_policy->at(costs_).count()) / ops;
  }
  return std::nullopt;
}

void Foresight::set_aside(KnownStep& step) {
  step.set_aside();
  tell(step);
}

void Foresight::measure_policy(KnownStep& step) {
  if (settings_.recorded || op_cost() <= 0) {
    return;
  }
  step.in_budget.by_policy.add(relative_cost());
  if (step.in_budget.aside && !step.in_work && step.in_budget.by_policy.enough() &&
      *step.in_budget.by_policy.median() > *step.in_use.costs.median()) {
    step.use_aside();
    in_place_ = 0;
    tell(step);
  }
}

}  // namespace recoup::detail
