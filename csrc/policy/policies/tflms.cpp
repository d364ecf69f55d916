// Spills the value whose next use is furthest away, once. TFLMS (Le et al., ISMM 2019) swaps a
// value if its next use is farther away than a threshold; the largest threshold with which a graph
// fits gives the same order.
#include "csrc/policy/registry.h"
#include "csrc/policy/score_policy.h"

namespace recoup::detail {
namespace {

class Tflms final : public ScorePolicy {
 public:
  using ScorePolicy::ScorePolicy;
  [[nodiscard]] std::string_view name() const noexcept override { return "tflms"; }

 private:
  [[nodiscard]] bool looks_ahead() const noexcept override { return true; }

  double score(const Candidate& candidate, double /*cost*/, Tick /*now*/) override {
    return -static_cast<double>(candidate.until_use.count());
  }

  [[nodiscard]] GetBack get_back(const Candidate& victim, double /*cost*/) const override {
    return victim.until_use == Candidate::kNever ? GetBack::kReplay : GetBack::kCopy;
  }
};

}  // namespace

std::span<const PolicyInfo> tflms_policies() {
  static constexpr PolicyInfo kPolicies[] = {
      {.name = "tflms",
       .summary =
           "the value with the farthest next use, spills if there is a spill tier (simulation)",
       .defaults = kSimulator,
       .make = make_policy<Tflms>,
       .simulated_only = true},
  };
  return kPolicies;
}

}  // namespace recoup::detail
