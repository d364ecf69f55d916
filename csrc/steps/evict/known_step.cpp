#include "csrc/steps/evict/known_step.h"

#include <algorithm>
#include <utility>

namespace recoup::detail {
namespace {

// The second plan is used if it costs less than this multiple of the first one.
constexpr double kBetter = 0.99;
constexpr std::size_t kLastRuns = 4;  // limit of runs whose costs of ops are known

}  // namespace

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

void KnownStep::add_costs(const std::vector<Nanoseconds>& run) {
  if (runs.size() == kLastRuns) {
    runs.pop_front();
  }
  runs.push_back(run);
}

std::vector<Nanoseconds> KnownStep::lowest_costs() const {
  std::vector<Nanoseconds> lowest = runs.empty() ? std::vector<Nanoseconds>() : runs.front();
  for (const std::vector<Nanoseconds>& run : runs) {
    for (std::size_t op = 0; op < std::min(lowest.size(), run.size()); ++op) {
      lowest[op] = std::min(lowest[op], run[op]);
    }
  }
  return lowest;
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
  const std::vector<Nanoseconds> costs = lowest_costs();
  const auto cost = [&](const StepEvictions& plan) {
    return static_cast<double>(plan.expected.at(costs).count());
  };
  const bool better = found && !has(found) && cost(*found) < kBetter * cost(in_budget.first->plan);
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
  in_budget.first.reset();
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
