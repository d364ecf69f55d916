// What an op does, as far as its name tells.
#pragma once

#include <string_view>

namespace recoup::detail {

// Whether its cost grows faster than the bytes that it reads and writes: convolutions, products of
// matrices, attention, recurrent cells. All others are cheap to run again.
bool is_compute_heavy(std::string_view name);

}  // namespace recoup::detail
