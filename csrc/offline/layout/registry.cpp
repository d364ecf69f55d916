// The table of all planners.
#include <algorithm>
#include <array>
#include <stdexcept>

#include "csrc/base/strings.h"
#include "csrc/layout/greedy.h"
#include "csrc/offline/layout/planner.h"

namespace recoup {
namespace detail {

LayoutPlacement place_max_block(const LayoutInput& input);     // blocks.cpp
LayoutPlacement place_binary_block(const LayoutInput& input);  // blocks.cpp
LayoutPlacement place_multi_level(const LayoutInput& input);   // multi_level.cpp
LayoutPlacement place_first_fit(const LayoutInput& input);     // online.cpp
LayoutPlacement place_best_fit(const LayoutInput& input);      // online.cpp
LayoutPlacement place_by_search(const LayoutInput& input);     // search.cpp

namespace {

LayoutPlacement place_greedy_by_size(const LayoutInput& input) {
  return *place_in_order(input, order_by_size(input.items), {});
}

// Only the size, which plan_layout knows without a planner.
LayoutPlacement place_nothing(const LayoutInput& input) {
  return {.offsets = {}, .size = input.bound, .least = 0, .nodes = 0};
}

constexpr std::array kPlanners = {
    Planner{{"bound", "the most bytes that are live at one moment; no layout takes less", false},
            place_nothing},
    Planner{{"max-block",
             "reuses blocks for any later buffer and grows them to the largest one "
             "(GE)"},
            place_max_block},
    Planner{{"binary-block", "as max-block, within ranges of sizes that are powers of two (GE)"},
            place_binary_block},
    Planner{{"ge",
             "joins buffers of equal size, then places large to small, inside larger blocks "
             "(GE)"},
            place_multi_level},
    Planner{{"first-fit", "online: the lowest gap"}, place_first_fit},
    Planner{{"best-fit", "online: the smallest gap"}, place_best_fit},
    Planner{{"greedy-by-size", "large to small, each at the lowest free address"},
            place_greedy_by_size},
    Planner{
        {"search", "the least size; searches until it is proved or the time is up (MiniMalloc)"},
        place_by_search},
};

constexpr auto kInfos = [] {
  std::array<PlannerInfo, kPlanners.size()> infos;
  std::transform(kPlanners.begin(), kPlanners.end(), infos.begin(),
                 [](const Planner& planner) { return planner.info; });
  return infos;
}();

}  // namespace

const Planner& planner_named(std::string_view name) {
  std::string known;
  for (const Planner& planner : kPlanners) {
    if (planner.info.name == name) {
      return planner;
    }
    known += str_cat(known.empty() ? "" : ", ", planner.info.name);
  }
  throw std::invalid_argument(str_cat("unknown planner '", name, "'; the planners are ", known));
}

}  // namespace detail

std::span<const PlannerInfo> planners() { return detail::kInfos; }

const PlannerInfo& find_planner(std::string_view name) { return detail::planner_named(name).info; }

}  // namespace recoup
