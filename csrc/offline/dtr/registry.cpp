// The table of all scores that the DTR authors compare.
#include <array>
#include <stdexcept>

#include "csrc/base/strings.h"
#include "csrc/offline/dtr/simulator.h"

namespace recoup {
namespace {

using Cost = DtrScore::Cost;

constexpr std::array kPolicies = {
    DtrPolicyInfo{"dtr", {.cost = Cost::kExact, .staleness = true, .size = true}},
    DtrPolicyInfo{"dtr-eq", {.cost = Cost::kEquivalence, .staleness = true, .size = true}},
    DtrPolicyInfo{"dtr-local", {.cost = Cost::kLocal, .staleness = true, .size = true}},
    DtrPolicyInfo{"lru", {.cost = Cost::kNone, .staleness = true, .size = false}},
    DtrPolicyInfo{"largest", {.cost = Cost::kNone, .staleness = false, .size = true}},
    DtrPolicyInfo{"msps", {.cost = Cost::kAncestors, .staleness = false, .size = true}},
    // Ablation study.
    DtrPolicyInfo{"dtr-no-size", {.cost = Cost::kExact, .staleness = true, .size = false}},
    DtrPolicyInfo{"dtr-no-staleness", {.cost = Cost::kExact, .staleness = false, .size = true}},
    DtrPolicyInfo{"dtr-only-cost", {.cost = Cost::kExact, .staleness = false, .size = false}},
    DtrPolicyInfo{"dtr-eq-no-size", {.cost = Cost::kEquivalence, .staleness = true, .size = false}},
    DtrPolicyInfo{"dtr-eq-no-staleness",
                  {.cost = Cost::kEquivalence, .staleness = false, .size = true}},
    DtrPolicyInfo{"dtr-eq-only-cost",
                  {.cost = Cost::kEquivalence, .staleness = false, .size = false}},
    DtrPolicyInfo{"dtr-local-no-size", {.cost = Cost::kLocal, .staleness = true, .size = false}},
    DtrPolicyInfo{"dtr-local-no-staleness",
                  {.cost = Cost::kLocal, .staleness = false, .size = true}},
    DtrPolicyInfo{"dtr-local-only-cost", {.cost = Cost::kLocal, .staleness = false, .size = false}},
    DtrPolicyInfo{"no-cost", {.cost = Cost::kNone, .staleness = true, .size = true}},
};

const DtrPolicyInfo& find_dtr_policy(std::string_view name) {
  std::string known;
  for (const DtrPolicyInfo& info : kPolicies) {
    if (info.name == name) {
      return info;
    }
    known += detail::str_cat(known.empty() ? "" : ", ", info.name);
  }
  throw std::invalid_argument(detail::str_cat(
      "unknown policy '", name, "'; the policies of the DTR authors' simulator are ", known));
}

}  // namespace

std::span<const DtrPolicyInfo> dtr_policies() { return kPolicies; }

SimulationResult simulate_dtr(const DtrProgram& program, std::string_view policy, Bytes budget,
                              double max_time_ratio) {
  const DtrScore score = find_dtr_policy(policy).score;
  return detail::DtrSimulator(program, score, budget, max_time_ratio).run();
}

}  // namespace recoup
