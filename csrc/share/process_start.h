// Tells processes apart whose ids are equal because one began after the other had ended.
#pragma once

#include <cstdint>
#include <optional>

namespace recoup::detail {

// When a process began, in ticks since the machine's start; a process id alone may belong to a
// later process. nullopt: it has ended. 0: that cannot be found out, for example because this
// process has no file descriptor left.
[[nodiscard]] std::optional<std::uint64_t> start_of(std::int64_t process);

}  // namespace recoup::detail
