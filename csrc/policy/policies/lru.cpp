// h_LRU = 1 / s: the value that was not used for longest (DTR, section 4.1).
#include <memory>

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

std::unique_ptr<EvictionPolicy> make_lru(const PolicyOptions& options) {
  return std::make_unique<Lru>(options);
}

}  // namespace recoup::detail
