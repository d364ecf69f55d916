#include "csrc/policy/registry.h"

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "csrc/base/strings.h"
#include "recoup/options.h"

namespace recoup {
namespace detail {

// Declares the table of each file of the folder.
#define RECOUP_POLICY_FILE(name) std::span<const PolicyInfo> name##_policies();
#include "policy_files.inc"
#undef RECOUP_POLICY_FILE

namespace {

// The default first, then other policies of live runs, schedules, and policies of simulations.
int rank(const PolicyInfo& info) {
  if (info.name == Options().policy) {
    return 0;
  }
  return info.simulated_only ? 3 : info.schedule != ScheduleKind::kNone ? 2 : 1;
}

std::vector<PolicyInfo> find_policies() {
  std::vector<PolicyInfo> found;
#define RECOUP_POLICY_FILE(name)                     \
  for (const PolicyInfo& info : name##_policies()) { \
    found.push_back(info);                           \
  }
#include "policy_files.inc"
#undef RECOUP_POLICY_FILE
  std::stable_sort(found.begin(), found.end(),
                   [](const PolicyInfo& a, const PolicyInfo& b) { return rank(a) < rank(b); });
  return found;
}

}  // namespace
}  // namespace detail

std::span<const PolicyInfo> policies() {
  static const std::vector<PolicyInfo> found = detail::find_policies();
  return found;
}

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
