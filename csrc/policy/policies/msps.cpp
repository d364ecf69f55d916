// h_MSPS: cost of what a replay would run, divided by the bytes freed, whatever their age. This is
// the inverse of Capuchin's "memory saved per second" (DTR, section 4.1).
#include "csrc/policy/registry.h"
#include "csrc/policy/score_policy.h"
#include "csrc/policy/terms.h"

namespace recoup::detail {
namespace {

class Msps final : public ScorePolicy {
 public:
  using ScorePolicy::ScorePolicy;
  [[nodiscard]] std::string_view name() const noexcept override { return "msps"; }

 private:
  [[nodiscard]] std::optional<Neighborhood> neighborhood() const noexcept override {
    return Neighborhood::kAncestors;
  }

  double score(const Candidate& candidate, double cost, Tick /*now*/) override {
    return cost / bytes(candidate);
  }
};

}  // namespace

std::span<const PolicyInfo> msps_policies() {
  static constexpr PolicyInfo kPolicies[] = {
      {.name = "msps",
       .summary = "lowest cost of a replay over bytes (Capuchin)",
       .defaults = kSimulator,
       .make = make_policy<Msps>},
  };
  return kPolicies;
}

}  // namespace recoup::detail
