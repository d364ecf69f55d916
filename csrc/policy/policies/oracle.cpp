// A bound for policies that know the future: the cost to restore a value, divided by its bytes and
// by the time until its next use. For simulations only.
#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "csrc/policy/registry.h"
#include "csrc/policy/score_policy.h"
#include "csrc/policy/terms.h"

namespace recoup::detail {
namespace {

// std::pow, which takes several times as long as roots do.
double power(double base, double exponent) {
  if (exponent == 0) {
    return 1;
  }
  if (exponent == 1) {
    return base;
  }
  if (exponent == 2) {
    return base * base;
  }
  const double root = std::sqrt(base);
  if (exponent == 0.5) {
    return root;
  }
  if (exponent == 0.25) {
    return std::sqrt(root);
  }
  return exponent == 0.75 ? root * std::sqrt(root) : std::pow(base, exponent);
}

class Oracle final : public ScorePolicy {
 public:
  explicit Oracle(const PolicyOptions& options) : ScorePolicy(options), options_(options.oracle) {
    for (double number :
         {options_.cost, options_.size, options_.distance, options_.ancestors, options_.age}) {
      if (!(number >= 0 && number <= 8)) {  // so that no power of 2^63 overflows a double
        throw std::invalid_argument("exponents and weight of oracle must be from 0 to 8");
      }
    }
  }
  [[nodiscard]] std::string_view name() const noexcept override { return "oracle"; }

 private:
  [[nodiscard]] std::optional<Neighborhood> neighborhood() const noexcept override {
    return Neighborhood::kAncestors;
  }
  [[nodiscard]] bool looks_ahead() const noexcept override { return options_.ahead; }
  [[nodiscard]] bool has_priorities() const noexcept override { return true; }
  [[nodiscard]] bool looks_at_copies() const noexcept override { return options_.copies > 0; }

  double score(const Candidate& candidate, double cost, Tick now) override {
    if (options_.ahead && candidate.until_use == Candidate::kNever) {
      return 0;
    }
    const auto own = static_cast<double>(candidate.own_cost.count());
    // A cost or a distance of 0 counts as 1 ns.
    double total = own + options_.ancestors * (cost - own);
    if (looks_at_copies() && candidate.copy_cost != Candidate::kNever) {
      total = std::min(total, options_.copies * static_cast<double>(candidate.copy_cost.count()));
    }
    total = std::max(total, 1.0);
    const double distance = std::max(static_cast<double>(candidate.until_use.count()), 1.0);
    return power(total, options_.cost) /
           (power(bytes(candidate), options_.size) * power(distance, options_.distance) *
            power(staleness(candidate, now), options_.age));
  }

  [[nodiscard]] GetBack get_back(const Candidate& victim, double cost) const override {
    const bool copied = looks_at_copies() && victim.copy_cost != Candidate::kNever &&
                        options_.copies * static_cast<double>(victim.copy_cost.count()) < cost;
    return !looks_at_copies() ? GetBack::kCheapest : copied ? GetBack::kCopy : GetBack::kReplay;
  }

  OracleOptions options_;
};

}  // namespace

std::span<const PolicyInfo> oracle_policies() {
  static constexpr PolicyInfo kPolicies[] = {
      {.name = "oracle",
       .summary = "lowest cost to restore over bytes and time until the next use (simulation)",
       .defaults = kSimulator,
       .make = make_policy<Oracle>,
       .simulated_only = true},
  };
  return kPolicies;
}

}  // namespace recoup::detail
