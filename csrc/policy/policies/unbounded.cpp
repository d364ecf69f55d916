// The program as it is: a simulation gives it all the memory that there is, whatever the budget.
#include <memory>

#include "csrc/policy/score_policy.h"
#include "csrc/policy/terms.h"

namespace recoup::detail {
namespace {

class Unbounded final : public ScorePolicy {
 public:
  using ScorePolicy::ScorePolicy;
  [[nodiscard]] std::string_view name() const noexcept override { return "unbounded"; }

 private:
  double score(const Candidate& candidate, double /*cost*/, Tick /*now*/) override {
    return 1 / bytes(candidate);
  }
};

}  // namespace

std::unique_ptr<EvictionPolicy> make_unbounded(const PolicyOptions& options) {
  return std::make_unique<Unbounded>(options);
}

}  // namespace recoup::detail
