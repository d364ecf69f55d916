// h_LRU = 1 / s: the value with the longest time since its last use (DTR, section 4.1). `lru-copy`
// spills it whatever a replay costs, like the first systems that swapped to the host.
#include "csrc/policy/registry.h"
#include "csrc/policy/score_policy.h"
#include "csrc/policy/terms.h"

namespace recoup::detail {
namespace {

class Lru : public ScorePolicy {
 public:
  using ScorePolicy::ScorePolicy;
  [[nodiscard]] std::string_view name() const noexcept override { return "lru"; }

 private:
  double score(const Candidate& candidate, double /*cost*/, Tick now) override {
    return 1 / staleness(candidate, now);
  }
};

class LruCopy final : public Lru {
 public:
  using Lru::Lru;
  [[nodiscard]] std::string_view name() const noexcept override { return "lru-copy"; }

 private:
  [[nodiscard]] GetBack get_back(const Candidate& /*victim*/, double /*cost*/) const override {
    return GetBack::kCopy;
  }
};

}  // namespace

std::span<const PolicyInfo> lru_policies() {
  static constexpr PolicyInfo kPolicies[] = {
      {.name = "lru",
       .summary = "the least recently used value",
       .defaults = kSimulator,
       .make = make_policy<Lru>},
      {.name = "lru-copy",
       .summary = "as lru, but spills if there is a spill tier",
       .defaults = kSimulator,
       .make = make_policy<LruCopy>},
  };
  return kPolicies;
}

}  // namespace recoup::detail
