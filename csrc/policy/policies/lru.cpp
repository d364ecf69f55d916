// h_LRU = 1 / s: the value that was not used for longest (DTR, section 4.1).
#include "csrc/policy/registry.h"
#include "csrc/policy/score_policy.h"
#include "csrc/policy/terms.h"

namespace recoup::detail {
namespace {

class Lru final : public ScorePolicy {
 public:
  using ScorePolicy::ScorePolicy;
  [[nodiscard]] std::string_view name() const noexcept override { return "lru"; }

 private:
  double score(const Candidate& candidate, double /*cost*/, Tick now) override {
    return 1 / staleness(candidate, now);
  }
};

}  // namespace

std::span<const PolicyInfo> lru_policies() {
  static constexpr PolicyInfo kPolicies[] = {
      {.name = "lru",
       .summary = "the value that was not used for longest",
       .defaults = kSimulator,
       .make = make_policy<Lru>},
  };
  return kPolicies;
}

}  // namespace recoup::detail
