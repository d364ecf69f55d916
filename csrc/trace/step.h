// Extracts one step, or the beginning, of a trace as a separate trace.
#pragma once

#include <cstddef>

#include "recoup/api.h"
#include "recoup/trace.h"

namespace recoup::detail {

// Storages from before the step are external in the result, so they are never evicted. Blocks that
// are held and pins that are in force at its beginning are recreated. Step `index`, from 0, reaches
// from the previous mark, or the start, to its own mark, which is included. `trace` must be valid.
// Throws std::invalid_argument if there is no such step.
RECOUP_API Trace step_of(const Trace& trace, std::size_t index);

// The trace up to event `count`, without plans, which concern a whole run. All names and kernels
// stay. `trace` must be valid.
RECOUP_API Trace first_events(const Trace& trace, std::size_t count);

}  // namespace recoup::detail
