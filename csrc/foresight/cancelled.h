// Ends the making of a plan that nobody wants any more.
#pragma once

namespace recoup::detail {

struct PlanCancelled {};

}  // namespace recoup::detail
