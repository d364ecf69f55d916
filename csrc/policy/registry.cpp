// The one table of policies. To add one: docs/add-a-policy.md.
#include <array>
#include <stdexcept>

#include "csrc/base/strings.h"
#include "recoup/policy.h"

namespace recoup {
namespace detail {

// Each is defined in the file of its name.
std::unique_ptr<EvictionPolicy> make_recoup(const PolicyOptions& options);
std::unique_ptr<EvictionPolicy> make_dtr(const PolicyOptions& options);
std::unique_ptr<EvictionPolicy> make_dtr_eq(const PolicyOptions& options);
std::unique_ptr<EvictionPolicy> make_dtr_local(const PolicyOptions& options);
std::unique_ptr<EvictionPolicy> make_lru(const PolicyOptions& options);
std::unique_ptr<EvictionPolicy> make_largest(const PolicyOptions& options);
std::unique_ptr<EvictionPolicy> make_msps(const PolicyOptions& options);
std::unique_ptr<EvictionPolicy> make_dte(const PolicyOptions& options);
std::unique_ptr<EvictionPolicy> make_coop(const PolicyOptions& options);
std::unique_ptr<EvictionPolicy> make_coop_move(const PolicyOptions& options);
std::unique_ptr<EvictionPolicy> make_random(const PolicyOptions& options);
std::unique_ptr<EvictionPolicy> make_oracle(const PolicyOptions& options);
std::unique_ptr<EvictionPolicy> make_unbounded(const PolicyOptions& options);

namespace {

// DTR's prototype has both on (E.2). At the tightest budgets its authors turned sampling off.
constexpr PolicyOptions kPrototype = {.small_filter = true, .sampling = true};
// These stand beside DTR for comparison, and the paper compares them in its simulator, which scores
// every storage (section 4.1).
constexpr PolicyOptions kSimulator = {.small_filter = false, .sampling = false};
// The same victims, found without a scan.
constexpr PolicyOptions kInOrder = {.small_filter = false, .sampling = false, .kinetic = true};

constexpr std::array kPolicies = {
    PolicyInfo{"recoup", "cost of what a replay would run over bytes and the root of staleness",
               kInOrder, make_recoup, false, ScheduleKind::kNone, true},
    PolicyInfo{"dtr", "cost of value and evicted neighborhood, exactly, over bytes and staleness",
               kPrototype, make_dtr, false, ScheduleKind::kNone, true},
    PolicyInfo{"dtr-eq", "as dtr, the neighborhood approximated by union-find", kPrototype,
               make_dtr_eq, false, ScheduleKind::kNone, true},
    PolicyInfo{"dtr-local", "own cost over bytes and staleness", kPrototype, make_dtr_local, false,
               ScheduleKind::kNone, true},
    PolicyInfo{"lru", "the value that was not used for longest", kSimulator, make_lru},
    PolicyInfo{"largest", "the largest value", kSimulator, make_largest},
    PolicyInfo{"msps", "cost of what a replay would run over bytes (Capuchin)", kSimulator,
               make_msps},
    PolicyInfo{"dte", "as dtr-eq, free neighbors count as bytes, recomputes as cost (MegEngine)",
               kSimulator, make_dte},
    PolicyInfo{"coop", "the cheapest run of neighbors in the pool that makes the room (Coop)",
               kSimulator, make_coop},
    PolicyInfo{"coop-move", "as coop, what cannot be evicted may be moved out of the way",
               kSimulator, make_coop_move},
    PolicyInfo{"random", "any value, all equally likely", kSimulator, make_random},
    PolicyInfo{"sqrt-n", "schedule: sqrt(n) segments, one checkpoint each (Chen et al.)",
               kPrototype, make_dtr, false, ScheduleKind::kSqrtN, true},
    PolicyInfo{"recursive", "schedule: segments in segments, log(n) checkpoints (Chen et al.)",
               kPrototype, make_dtr, false, ScheduleKind::kRecursive, true},
    PolicyInfo{"budgeted", "schedule: greedy segments, the best size for the budget (memonger)",
               kPrototype, make_dtr, false, ScheduleKind::kBudgeted, true},
    PolicyInfo{"rotor", "schedule: the optimal one of a chain for the budget (Beaumont et al.)",
               kPrototype, make_dtr, false, ScheduleKind::kRotor, true},
    PolicyInfo{"mirror", "schedule: drop what cheap ops make, keep it once it is back (MXNet)",
               kPrototype, make_dtr, false, ScheduleKind::kMirror, true},
    PolicyInfo{"superneurons-speed", "schedule: drop what cheap ops make, get it back together",
               kPrototype, make_dtr, false, ScheduleKind::kSuperneuronsSpeed, true},
    PolicyInfo{"superneurons-memory", "schedule: drop what cheap ops make, get it back each time",
               kPrototype, make_dtr, false, ScheduleKind::kSuperneuronsMemory, true},
    PolicyInfo{"oracle", "cost to get it back over bytes and time until it is used (simulation)",
               kSimulator, make_oracle, true},
    PolicyInfo{"unbounded", "nothing: the program without a budget (simulation)", kSimulator,
               make_unbounded, true},
};

}  // namespace
}  // namespace detail

std::span<const PolicyInfo> policies() { return detail::kPolicies; }

const PolicyInfo& find_policy(std::string_view name) {
  std::string known;
  for (const PolicyInfo& info : policies()) {
    if (info.name == name) {
      return info;
    }
    known += detail::str_cat(known.empty() ? "" : ", ", info.name);
  }
  throw std::invalid_argument(
      detail::str_cat("unknown policy '", name, "'; the policies are ", known));
}

}  // namespace recoup
