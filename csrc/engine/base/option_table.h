// The options by name: for bindings and command lines, which know no members.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "recoup/api.h"
#include "recoup/options.h"

namespace recoup::detail {

// monostate: not set, for options that may be. A choice is its name, sizes are bytes; an infinite
// double stands for a whole number beyond 64 bits.
using OptionValue = std::variant<std::monostate, bool, std::int64_t, std::uint64_t, double,
                                 std::string, std::array<double, 4>>;

enum class OptionCheck : std::uint8_t { kGood, kWrongType, kNotAllowed };

// One option: the only place that says how it is called and what is allowed.
struct OptionRow {
  std::string_view name;
  std::string allowed;  // behind "must be", for messages
  std::function<OptionValue(const Options&)> get;
  // Sets nothing unless that is good.
  std::function<OptionCheck(Options&, const OptionValue&)> set;
};

// All that a caller may choose. The rest of Options is the device's to say, or a test's: `outside`,
// `alignment` and `aids`.
[[nodiscard]] RECOUP_API std::span<const OptionRow> option_rows();

}  // namespace recoup::detail
