// h_DTR: the cost of a value and of its evicted neighborhood e*, exactly (DTR, section 4.1).
#include "csrc/policy/registry.h"
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

std::span<const PolicyInfo> dtr_policies() {
  static constexpr PolicyInfo kPolicies[] = {
      {.name = "dtr",
       .summary = "cost of value and evicted neighborhood, exactly, over bytes and staleness",
       .defaults = kPrototype,
       .make = make_policy<Dtr>,
       .has_order = true},
      // Where a schedule leaves a choice, this decides.
      {.name = "sqrt-n",
       .summary = "schedule: sqrt(n) segments, one checkpoint each (Chen et al.)",
       .defaults = kPrototype,
       .make = make_policy<Dtr>,
       .schedule = ScheduleKind::kSqrtN,
       .has_order = true},
      {.name = "recursive",
       .summary = "schedule: segments in segments, log(n) checkpoints (Chen et al.)",
       .defaults = kPrototype,
       .make = make_policy<Dtr>,
       .schedule = ScheduleKind::kRecursive,
       .has_order = true},
      {.name = "budgeted",
       .summary = "schedule: greedy segments, the best size for the budget (memonger)",
       .defaults = kPrototype,
       .make = make_policy<Dtr>,
       .schedule = ScheduleKind::kBudgeted,
       .has_order = true},
      {.name = "rotor",
       .summary = "schedule: the optimal one of a chain for the budget (Beaumont et al.)",
       .defaults = kPrototype,
       .make = make_policy<Dtr>,
       .schedule = ScheduleKind::kRotor,
       .has_order = true},
      {.name = "mirror",
       .summary = "schedule: drop what cheap ops make, keep it once it is back (MXNet)",
       .defaults = kPrototype,
       .make = make_policy<Dtr>,
       .schedule = ScheduleKind::kMirror,
       .has_order = true},
      {.name = "superneurons-speed",
       .summary = "schedule: drop what cheap ops make, get it back together",
       .defaults = kPrototype,
       .make = make_policy<Dtr>,
       .schedule = ScheduleKind::kSuperneuronsSpeed,
       .has_order = true},
      {.name = "superneurons-memory",
       .summary = "schedule: drop what cheap ops make, get it back each time",
       .defaults = kPrototype,
       .make = make_policy<Dtr>,
       .schedule = ScheduleKind::kSuperneuronsMemory,
       .has_order = true},
  };
  return kPolicies;
}

}  // namespace recoup::detail
