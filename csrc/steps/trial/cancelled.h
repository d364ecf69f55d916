// PlanCancelled: thrown to stop planning when the result is not needed any more.
#pragma once

namespace recoup::detail {

struct PlanCancelled {};

}  // namespace recoup::detail
