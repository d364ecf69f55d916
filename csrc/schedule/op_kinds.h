// Classifies ops by their names.
#pragma once

#include <string_view>

namespace recoup::detail {

// Whether the cost of an op grows faster than the bytes that it reads and writes: convolutions,
// matrix products, attention, recurrent cells. All other ops are cheap to replay.
bool is_compute_heavy(std::string_view name);

}  // namespace recoup::detail
