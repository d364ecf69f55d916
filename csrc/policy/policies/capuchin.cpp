// Capuchin (Peng et al., ASPLOS 2020, section 4.4): a value whose copies end before its next use
// costs nothing, and the one with the most time left ("free time") is evicted first. If there is
// none, the candidate is evicted that adds the least time to the step, by its copies or by a
// replay.
#include <algorithm>

#include "csrc/policy/registry.h"
#include "csrc/policy/score_policy.h"
#include "csrc/policy/terms.h"

namespace recoup::detail {
namespace {

// Time of its copies that other ops do not hide, in ns; negative if they end before the next use.
double copies_over(const Candidate& candidate) {
  return static_cast<double>(candidate.copy_cost.count() - candidate.until_use.count());
}

class Capuchin final : public ScorePolicy {
 public:
  using ScorePolicy::ScorePolicy;
  [[nodiscard]] std::string_view name() const noexcept override { return "capuchin"; }

 private:
  [[nodiscard]] std::optional<Neighborhood> neighborhood() const noexcept override {
    return Neighborhood::kAncestors;
  }
  [[nodiscard]] bool looks_ahead() const noexcept override { return true; }
  [[nodiscard]] bool looks_at_copies() const noexcept override { return true; }

  double score(const Candidate& candidate, double cost, Tick /*now*/) override {
    if (candidate.until_use == Candidate::kNever) {
      return -static_cast<double>(Candidate::kNever.count());
    }
    if (candidate.copy_cost == Candidate::kNever) {
      return cost / bytes(candidate);
    }
    const double over = copies_over(candidate);
    return over <= 0 ? over : std::min(over, cost) / bytes(candidate);
  }

  [[nodiscard]] GetBack get_back(const Candidate& victim, double cost) const override {
    const bool copied = victim.until_use != Candidate::kNever &&
                        victim.copy_cost != Candidate::kNever && copies_over(victim) <= cost;
    return copied ? GetBack::kCopy : GetBack::kReplay;
  }
};

}  // namespace

std::span<const PolicyInfo> capuchin_policies() {
  static constexpr PolicyInfo kPolicies[] = {
      {.name = "capuchin",
       .summary = "values whose copies other ops hide, then the lowest added time (simulation)",
       .defaults = kSimulator,
       .make = make_policy<Capuchin>,
       .simulated_only = true},
  };
  return kPolicies;
}

}  // namespace recoup::detail
