// h_DTR^eq: uses the neighborhood e~* of union-find, which is cheap to compute and an overestimate
// (DTR, section 4.1 and C.2).
#include "csrc/policy/registry.h"
#include "csrc/policy/score_policy.h"
#include "csrc/policy/terms.h"

namespace recoup::detail {
namespace {

class DtrEq final : public ScorePolicy {
 public:
  using ScorePolicy::ScorePolicy;
  [[nodiscard]] std::string_view name() const noexcept override { return "dtr-eq"; }

 private:
  [[nodiscard]] std::optional<Neighborhood> neighborhood() const noexcept override {
    return Neighborhood::kEquivalence;
  }

  double score(const Candidate& candidate, double cost, Tick now) override {
    return h_dtr(candidate, cost, now);
  }
};

}  // namespace

std::span<const PolicyInfo> dtr_eq_policies() {
  static constexpr PolicyInfo kPolicies[] = {
      {.name = "dtr-eq",
       .summary = "as dtr, with the neighborhood approximated by union-find",
       .defaults = kPrototype,
       .make = make_policy<DtrEq>,
       .has_order = true},
  };
  return kPolicies;
}

}  // namespace recoup::detail
