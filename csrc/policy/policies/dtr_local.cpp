// h_DTR^local: a value's own cost only, no neighborhood (DTR, section 4.1).
#include "csrc/policy/registry.h"
#include "csrc/policy/score_policy.h"
#include "csrc/policy/terms.h"

namespace recoup::detail {
namespace {

class DtrLocal final : public ScorePolicy {
 public:
  using ScorePolicy::ScorePolicy;
  [[nodiscard]] std::string_view name() const noexcept override { return "dtr-local"; }

 private:
  double score(const Candidate& candidate, double cost, Tick now) override {
    return h_dtr(candidate, cost, now);
  }
};

}  // namespace

std::span<const PolicyInfo> dtr_local_policies() {
  static constexpr PolicyInfo kPolicies[] = {
      {.name = "dtr-local",
       .summary = "lowest cost of the value alone over bytes and staleness",
       .defaults = kPrototype,
       .make = make_policy<DtrLocal>,
       .has_order = true},
  };
  return kPolicies;
}

}  // namespace recoup::detail
