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

constexpr PolicyInfo schedule(std::string_view name, std::string_view summary, ScheduleKind kind) {
  return {.name = name,
          .summary = summary,
          .defaults = kPrototype,
          .make = make_policy<Dtr>,
          .schedule = kind,
          .has_order = true};
}

}  // namespace

std::span<const PolicyInfo> dtr_policies() {
  static constexpr PolicyInfo kPolicies[] = {
      {.name = "dtr",
       .summary = "lowest cost of value and evicted neighborhood (exact) over bytes and staleness",
       .defaults = kPrototype,
       .make = make_policy<Dtr>,
       .has_order = true},
      // This policy decides where a schedule leaves a choice.
      schedule("sqrt-n", "schedule: sqrt(n) segments with one checkpoint each (Chen et al.)",
               ScheduleKind::kSqrtN),
      schedule("recursive", "schedule: nested segments with log(n) checkpoints (Chen et al.)",
               ScheduleKind::kRecursive),
      schedule("budgeted", "schedule: greedy segments of the best size for the budget (memonger)",
               ScheduleKind::kBudgeted),
      schedule("rotor", "schedule: the optimum of a chain for the budget (Beaumont et al.)",
               ScheduleKind::kRotor),
      schedule("mirror", "schedule: evict results of cheap ops, keep them once restored (MXNet)",
               ScheduleKind::kMirror),
      schedule("superneurons-speed", "schedule: evict results of cheap ops, restore them together",
               ScheduleKind::kSuperneuronsSpeed),
      schedule("superneurons-memory",
               "schedule: evict results of cheap ops, restore them for one "
               "op at a time",
               ScheduleKind::kSuperneuronsMemory),
  };
  return kPolicies;
}

}  // namespace recoup::detail
