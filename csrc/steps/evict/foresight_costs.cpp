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
// The second plan is used if it costs less than this multiple of the first one.
constexpr double kBetter = 0.99;

}  // namespace

void Foresight::RecentCosts::add(double cost) {
  if (costs_.size() == kMost) {
    costs_.erase(costs_.begin());
  }
  costs_.push_back(cost);
}

std::optional<double> Foresight::RecentCosts::median() const {
  if (costs_.empty()) {
    return std::nullopt;
  }
  std::vector<double> sorted = costs_;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>((sorted.size() - 1) / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

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
  if (!std::exchange(step.tried, true) && !step.evictions->blocks.empty()) {
    plan_twice(step);
  } else if (!step.in_work) {
    watch_list(step, cost);
  }
}

// A plan with copies depends on where values were when the step began. A second one is made from a
// run that followed the first.
void Foresight::plan_twice(KnownStep& step) {
  if (has_tier() && !std::exchange(step.planned_twice, true)) {
    step.most = kBetter * static_cast<double>(step.evictions->expected.at(costs_).count());
    step.first = step.evictions;
    step.first_cost = relative_cost();
    step.again = true;
    fruitless_ = 0;
  }
}

// The second run of the second plan must not cost more than the first run of the first one.
bool Foresight::goes_back(KnownStep& step) {
  if (!std::exchange(step.is_second, false)) {
    return false;
  }
  std::optional<StepEvictions> first = std::exchange(step.first, std::nullopt);
  if (relative_cost() <= step.first_cost) {
    return false;
  }
  put(step, std::move(first));
  return true;
}

void Foresight::watch_list(KnownStep& step, double cost) {
  const double ops = op_cost();
  const double all = cost + search_cost();
  if (goes_back(step)) {
    return;
  }
  step.with_list.add(relative_cost());
  if (std::optional<double> by_policy = policy_cost(step)) {
    if (!step.evictions->blocks.empty()) {
      *by_policy += kMoreWithPlaces;
    }
    step.debt = std::max(0.0, step.debt + all - *by_policy * ops);
    // With a tier the policy costs less with each step, because it learns when values are used. If
    // the last step before the plan cost little more than those with it, it is measured again.
    const bool close = has_tier() && !step.evictions->blocks.empty() && step.with_list.enough() &&
                       *step.with_list.median() > kClearlyLess * step.by_policy.last();
    if (close && !std::exchange(step.policy_known, true)) {
      set_aside(step);
      return;
    }
    const bool slower = step.with_list.enough() && *step.with_list.median() > kSlower * *by_policy;
    if (slower || step.debt > kMostDebt * *by_policy * ops) {
      ++counts_.given_up_lists;
      set_aside(step);
      return;
    }
  }
  const auto expected = static_cast<double>(step.evictions->expected.at(costs_).count());
  step.excess = std::max(0.0, step.excess + cost - kOverrun * expected);
  if (step.excess > kMostExcess * expected) {
    step.excess = 0;
    if (std::has_single_bit(++step.overruns)) {
      step.again = true;
      fruitless_ = 0;
    }
  }
}

std::optional<double> Foresight::policy_cost(const KnownStep& step) const {
  const double ops = op_cost();
  if (const std::optional<double> measured = step.by_policy.median(); measured || ops <= 0) {
    return measured;
  }
  if (step.evictions->by_policy) {
    return static_cast<double>(step.evictions->by_policy->at(costs_).count()) / ops;
  }
  return std::nullopt;
}

void Foresight::set_aside(KnownStep& step) {
  step.debt = 0;
  step.aside = std::exchange(step.evictions, std::nullopt);
  step.by_policy.clear();
  tell(step);
}

void Foresight::measure_policy(KnownStep& step) {
  const double ops = op_cost();
  if (settings_.recorded || ops <= 0) {
    return;
  }
  step.by_policy.add((step_cost() + search_cost()) / ops);
  if (step.aside && !step.in_work && step.by_policy.enough() &&
      *step.by_policy.median() > *step.with_list.median()) {
    step.evictions = std::exchange(step.aside, std::nullopt);
    step.tried = false;
    step.arranges_once = false;
    in_place_ = 0;
    step.with_list.clear();
    tell(step);
  }
}

}  // namespace recoup::detail
