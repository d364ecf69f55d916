// One step of a trace as a trace of its own, for planners: steps repeat.
#pragma once

#include <cstddef>

#include "recoup/api.h"
#include "recoup/trace.h"

namespace recoup::detail {

// What is there when the step begins comes from outside, so it is never evicted; blocks that are
// held and pins that are on are made anew. Step `index`, from 0, lies behind the mark before it, or
// the start, and ends with its own mark. `trace` must be valid. Throws std::invalid_argument when
// there is no such step.
RECOUP_API Trace step_of(const Trace& trace, std::size_t index);

}  // namespace recoup::detail
