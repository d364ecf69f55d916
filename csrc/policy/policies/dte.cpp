// DTE: an eviction counts with the free bytes next to the victim, and frequent recomputation raises
// the cost (MegTaiChi, as in MegEngine). The cost is the own cost plus e~*, as in Coop's
// comparison.
#include <cmath>

#include "csrc/policy/registry.h"
#include "csrc/policy/score_policy.h"
#include "csrc/policy/terms.h"

namespace recoup::detail {
namespace {

class Dte final : public ScorePolicy {
 public:
  using ScorePolicy::ScorePolicy;
  [[nodiscard]] std::string_view name() const noexcept override { return "dte"; }

 private:
  [[nodiscard]] std::optional<Neighborhood> neighborhood() const noexcept override {
    return Neighborhood::kEquivalence;
  }
  [[nodiscard]] bool looks_around() const noexcept override { return true; }

  double score(const Candidate& candidate, double cost, Tick now) override {
    constexpr double kEpsilon = 1;  // nanosecond: orders values of cost 0 by age and size
    const double often = std::pow(1.0001, candidate.recomputes);
    const double joined = bytes(candidate) + static_cast<double>(candidate.free_around.count());
    return often * ((cost + kEpsilon) / (joined * staleness(candidate, now)));
  }
};

}  // namespace

std::span<const PolicyInfo> dte_policies() {
  static constexpr PolicyInfo kPolicies[] = {
      {.name = "dte",
       .summary = "as dtr-eq, but free neighbors count as bytes, recomputes as cost (MegEngine)",
       .defaults = kSimulator,
       .make = make_policy<Dte>},
  };
  return kPolicies;
}

}  // namespace recoup::detail
