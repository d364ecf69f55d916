// h_size = 1 / m: the largest value, as GreedyRemat does (DTR, section 4.1).
#include "csrc/policy/registry.h"
#include "csrc/policy/score_policy.h"
#include "csrc/policy/terms.h"

namespace recoup::detail {
namespace {

class Largest final : public ScorePolicy {
 public:
  using ScorePolicy::ScorePolicy;
  [[nodiscard]] std::string_view name() const noexcept override { return "largest"; }

 private:
  double score(const Candidate& candidate, double /*cost*/, Tick /*now*/) override {
    return 1 / bytes(candidate);
  }
};

}  // namespace

std::span<const PolicyInfo> largest_policies() {
  static constexpr PolicyInfo kPolicies[] = {
      {.name = "largest",
       .summary = "the largest value",
       .defaults = kSimulator,
       .make = make_policy<Largest>},
  };
  return kPolicies;
}

}  // namespace recoup::detail
