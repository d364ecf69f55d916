#include "csrc/steps/evict/known_step.h"

#include <algorithm>
#include <utility>

namespace recoup::detail {

void RecentCosts::add(double cost) {
  if (costs_.size() == kMost) {
    costs_.erase(costs_.begin());
  }
  costs_.push_back(cost);
}

std::optional<double> RecentCosts::median() const {
  if (costs_.empty()) {
    return std::nullopt;
  }
  std::vector<double> sorted = costs_;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>((sorted.size() - 1) / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

void KnownStep::add_costs(std::span<const Nanoseconds> run) {
  if (costs.empty()) {
    costs.assign(run.begin(), run.end());
  }
  for (std::size_t op = 0; op < std::min(costs.size(), run.size()); ++op) {
    costs[op] = std::min(costs[op], run[op]);
  }
}

bool KnownStep::has(const std::optional<StepEvictions>& found) const {
  const auto is_same = [&](const std::optional<StepEvictions>& known) {
    return known && found && known->list == found->list && known->blocks == found->blocks;
  };
  return is_same(evictions) || is_same(in_budget.aside);
}

bool KnownStep::accepts(const std::optional<StepEvictions>& found) {
  if (!awaits_second()) {
    return true;
  }
  const bool better = found && !has(found) &&
                      static_cast<double>(found->expected.total.count()) < in_budget.first->most;
  if (!better) {
    in_budget.first.reset();
  }
  return better;
}

void KnownStep::use(std::optional<StepEvictions> plan) {
  evictions = std::move(plan);
  in_use = {};
  in_budget.aside.reset();
  again = false;
  if (in_budget.first) {
    in_budget.first->replaced = true;
  }
}

void KnownStep::set_aside() {
  in_use.debt = 0;
  in_budget.aside = std::exchange(evictions, std::nullopt);
  in_budget.by_policy.clear();
}

void KnownStep::use_aside() {
  evictions = std::exchange(in_budget.aside, std::nullopt);
  in_use = {};
}

void KnownStep::change_budget() {
  in_use = {};
  in_budget = {};
  again = true;
  in_work = false;
  if (evictions) {
    evictions->blocks = {};
  }
}

}  // namespace recoup::detail
