// h_DTR^local: a value's own cost only, no neighborhood (DTR, section 4.1).
#include <memory>

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

std::unique_ptr<EvictionPolicy> make_dtr_local(const PolicyOptions& options) {
  return std::make_unique<DtrLocal>(options);
}

}  // namespace recoup::detail
