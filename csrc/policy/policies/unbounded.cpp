// The program without recoup: a simulation gives it unlimited memory, whatever the budget.
#include "csrc/policy/registry.h"
#include "csrc/policy/score_policy.h"
#include "csrc/policy/terms.h"

namespace recoup::detail {
namespace {

class Unbounded final : public ScorePolicy {
 public:
  using ScorePolicy::ScorePolicy;
  [[nodiscard]] std::string_view name() const noexcept override { return "unbounded"; }

 private:
  double score(const Candidate& candidate, double /*cost*/, Tick /*now*/) override {
    return 1 / bytes(candidate);
  }
};

}  // namespace

std::span<const PolicyInfo> unbounded_policies() {
  static constexpr PolicyInfo kPolicies[] = {
      {.name = "unbounded",
       .summary = "nothing: the program without a budget (simulation)",
       .defaults = kSimulator,
       .make = make_policy<Unbounded>,
       .simulated_only = true},
  };
  return kPolicies;
}

}  // namespace recoup::detail
