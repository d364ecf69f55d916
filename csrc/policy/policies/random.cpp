// A new random score for every candidate in every plan: all are equally likely victims.
#include "csrc/policy/registry.h"
#include "csrc/policy/score_policy.h"

namespace recoup::detail {
namespace {

class Random final : public ScorePolicy {
 public:
  // The seed differs from that of the search, so that scores are independent of the strides.
  explicit Random(const PolicyOptions& options) : ScorePolicy(options), rng_(~options.seed) {}
  [[nodiscard]] std::string_view name() const noexcept override { return "random"; }

 private:
  double score(const Candidate& /*candidate*/, double /*cost*/, Tick /*now*/) override {
    return static_cast<double>(rng_());
  }

  Rng rng_;
};

}  // namespace

std::span<const PolicyInfo> random_policies() {
  static constexpr PolicyInfo kPolicies[] = {
      {.name = "random",
       .summary = "any value with equal probability",
       .defaults = kSimulator,
       .make = make_policy<Random>},
  };
  return kPolicies;
}

}  // namespace recoup::detail
