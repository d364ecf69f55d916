// The policy of the default, `planned`, between its lists: cost of what a replay would run, divided
// by the bytes freed and the root of their age.
//
// Training reads most results of the forward pass once more, in reverse order, and gradients once
// at the end of the step. So a value that was idle for twice as long is not half as likely to be
// needed, as DTR's score assumes. With DTR's score, old and expensive large gradients are evicted
// before young, cheap activations. Evicted descendants, which DTR's neighborhood includes, are left
// out: evicting the value does not make them more expensive.
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
  [[nodiscard]] bool spares() const noexcept override { return true; }

 private:
  [[nodiscard]] std::optional<Neighborhood> neighborhood() const noexcept override {
    return Neighborhood::kAncestors;
  }
  [[nodiscard]] bool ages_by_root() const noexcept override { return true; }

  double score(const Candidate& candidate, double cost, Tick now) override {
    return cost / (bytes(candidate) * std::sqrt(staleness(candidate, now)));
  }
};

// Decides if an eviction list names no victim: see csrc/foresight.
class Planned final : public Recoup {
 public:
  using Recoup::Recoup;
  [[nodiscard]] std::string_view name() const noexcept override { return "planned"; }
};

}  // namespace

std::span<const PolicyInfo> recoup_policies() {
  static constexpr PolicyInfo kPolicies[] = {
      {.name = "recoup",
       .summary = "lowest cost of a replay over bytes and the root of staleness",
       .defaults = kInOrder,
       .make = make_policy<Recoup>,
       .has_order = true},
      {.name = "planned",
       .summary = "as recoup; in steps that repeat, the evictions that a search found cheapest",
       .defaults = kInOrder,
       .make = make_policy<Planned>,
       .foresees = true,
       .has_order = true},
  };
  return kPolicies;
}

}  // namespace recoup::detail
