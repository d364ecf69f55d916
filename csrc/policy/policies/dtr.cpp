// h_DTR: the cost of a value and of its evicted neighborhood e*, exactly (DTR, section 4.1).
#include <memory>

#include "csrc/policy/score_policy.h"
#include "csrc/policy/terms.h"

namespace recoup::detail {
namespace {

class Dtr final : public ScorePolicy {
 public:
  using ScorePolicy::ScorePolicy;
  [[nodiscard]] std::string_view name() const noexcept override { return "dtr"; }

 private:
  [[nodiscard]] std::optional<Neighborhood> neighborhood() const noexcept override {
    return Neighborhood::kExact;
  }

  double score(const Candidate& candidate, double cost, Tick now) override {
    return h_dtr(candidate, cost, now);
  }
};

}  // namespace

std::unique_ptr<EvictionPolicy> make_dtr(const PolicyOptions& options) {
  return std::make_unique<Dtr>(options);
}

}  // namespace recoup::detail
