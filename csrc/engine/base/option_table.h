// The options by name, for bindings and command lines.
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

// The value of an option. monostate: unset, for optional ones. A choice is given by its name, a
// size in bytes. An infinite double stands for a whole number beyond 64 bits.
using OptionValue = std::variant<std::monostate, bool, std::int64_t, std::uint64_t, double,
                                 std::string, std::array<double, 4>>;

enum class OptionCheck : std::uint8_t { kGood, kWrongType, kNotAllowed };

// One option: its name, its allowed values and its accessors. Defined nowhere else.
struct OptionRow {
  std::string_view name;
  std::string allowed;  // the text after "must be" in messages
  std::function<OptionValue(const Options&)> get;
  // Sets the option only if it returns kGood.
  std::function<OptionCheck(Options&, const OptionValue&)> set;
};

// All options that a caller may choose. Not included are those that a device or a test sets:
// `outside`, `alignment` and `aids`.
[[nodiscard]] RECOUP_API std::span<const OptionRow> option_rows();

}  // namespace recoup::detail
