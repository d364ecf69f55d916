// The default: what a replay would really run, over the bytes freed and the root of their age.
//
// Training reads what forward made once more, in the reverse order, and gradients once, at its end:
// that a value was idle for twice as long does not make it half as likely to be needed, which is
// what DTR's score says. So large gradients, old and dear, went before young cheap activations. And
// the evicted descendants, which DTR's neighborhood counts too, cost no more when it is gone.
#include <cmath>

#include "csrc/policy/registry.h"
#include "csrc/policy/score_policy.h"
#include "csrc/policy/terms.h"

namespace recoup::detail {
namespace {

class Recoup : public ScorePolicy {
 public:
  using ScorePolicy::ScorePolicy;
  [[nodiscard]] std::string_view name() const noexcept override { return "recoup"; }

 private:
  [[nodiscard]] std::optional<Neighborhood> neighborhood() const noexcept override {
    return Neighborhood::kAncestors;
  }
  [[nodiscard]] bool ages_by_root() const noexcept override { return true; }

  double score(const Candidate& candidate, double cost, Tick now) override {
    return cost / (bytes(candidate) * std::sqrt(staleness(candidate, now)));
  }
};

// What decides where a list of evictions names nothing: csrc/foresight.
class Planned final : public Recoup {
 public:
  using Recoup::Recoup;
  [[nodiscard]] std::string_view name() const noexcept override { return "planned"; }
};

}  // namespace

std::span<const PolicyInfo> recoup_policies() {
  static constexpr PolicyInfo kPolicies[] = {
      {.name = "recoup",
       .summary = "cost of what a replay would run over bytes and the root of staleness",
       .defaults = kInOrder,
       .make = make_policy<Recoup>,
       .has_order = true},
      {.name = "planned",
       .summary = "recoup, and in steps that repeat the evictions that a search found cheapest",
       .defaults = kInOrder,
       .make = make_policy<Planned>,
       .foresees = true,
       .has_order = true},
  };
  return kPolicies;
}

}  // namespace recoup::detail
