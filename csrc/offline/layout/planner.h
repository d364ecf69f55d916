// The interface of planners: a problem without names, streams, alignment and in-place pairs.
#pragma once

#include "csrc/layout/items.h"
#include "recoup/offline/layout.h"

namespace recoup::detail {

struct Planner {
  PlannerInfo info;
  LayoutPlacement (*place)(const LayoutInput& input);
};

const Planner& planner_named(std::string_view name);

}  // namespace recoup::detail
