#include "csrc/engine/base/option_table.h"

#include <cmath>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "csrc/base/strings.h"

namespace recoup::detail {
namespace {

// Upper bound of sizes: above any machine's memory, and sums of a few fit in 64 bits.
constexpr std::uint64_t kMostInOption = std::uint64_t{1} << 62;

template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};

// Converts a member of Options to the value type of the table.
template <class T>
OptionValue value_of(const T& member) {
  if constexpr (IsOptional<T>::value) {
    return member ? OptionValue(*member) : OptionValue();
  } else if constexpr (std::is_same_v<T, Bytes>) {
    return member.count();
  } else if constexpr (std::is_same_v<T, std::int32_t>) {
    return std::int64_t{member};
  } else {
    return member;
  }
}

template <class Member>
OptionRow row(std::string_view name, std::string allowed, Member Options::* member,
              std::function<OptionCheck(Member&, const OptionValue&)> set) {
  return {.name = name,
          .allowed = std::move(allowed),
          .get = [member](const Options& options) { return value_of(options.*member); },
          .set =
              [member, set = std::move(set)](Options& options, const OptionValue& value) {
                if constexpr (IsOptional<Member>::value) {
                  if (std::holds_alternative<std::monostate>(value)) {
                    options.*member = std::nullopt;
                    return OptionCheck::kGood;
                  }
                }
                return set(options.*member, value);
              }};
}

template <class Member>  // bool, or an optional one
OptionRow flag(std::string_view name, Member Options::* member) {
  return row<Member>(name, IsOptional<Member>::value ? "True, False or None" : "True or False",
                     member, [](Member& into, const OptionValue& value) {
                       const bool* const given = std::get_if<bool>(&value);
                       if (given == nullptr) {
                         return OptionCheck::kWrongType;
                       }
                       into = *given;
                       return OptionCheck::kGood;
                     });
}

template <class Member>  // Bytes, or a plain whole number
OptionRow whole(std::string_view name, Member Options::* member, std::uint64_t least,
                std::uint64_t most) {
  return row<Member>(name, str_cat("a whole number from ", least, " to ", most), member,
                     [least, most](Member& into, const OptionValue& value) {
                       std::uint64_t given = 0;
                       if (const auto* const number = std::get_if<std::int64_t>(&value)) {
                         if (*number < 0) {
                           return OptionCheck::kNotAllowed;
                         }
                         given = static_cast<std::uint64_t>(*number);
                       } else if (const auto* const large = std::get_if<std::uint64_t>(&value)) {
                         given = *large;
                       } else {  // infinity stands for a number beyond 64 bits
                         const double* const real = std::get_if<double>(&value);
                         return real != nullptr && std::isinf(*real) ? OptionCheck::kNotAllowed
                                                                     : OptionCheck::kWrongType;
                       }
                       if (given < least || given > most) {
                         return OptionCheck::kNotAllowed;
                       }
                       if constexpr (std::is_same_v<Member, Bytes>) {
                         into = Bytes(static_cast<std::int64_t>(given));
                       } else {
                         into = static_cast<Member>(given);
                       }
                       return OptionCheck::kGood;
                     });
}

template <class Member>  // double, or an optional one
OptionRow real(std::string_view name, std::string allowed, Member Options::* member, double least,
               double most) {
  return row<Member>(name, std::move(allowed), member,
                     [least, most](Member& into, const OptionValue& value) {
                       double given = 0;
                       if (const auto* const number = std::get_if<double>(&value)) {
                         given = *number;
                       } else if (const auto* const whole = std::get_if<std::int64_t>(&value)) {
                         given = static_cast<double>(*whole);
                       } else if (const auto* const large = std::get_if<std::uint64_t>(&value)) {
                         given = static_cast<double>(*large);
                       } else {
                         return OptionCheck::kWrongType;
                       }
                       if (!(given >= least && given <= most)) {  // also rejects NaN
                         return OptionCheck::kNotAllowed;
                       }
                       into = given;
                       return OptionCheck::kGood;
                     });
}

template <class Choice>
using Choices = std::vector<std::pair<std::string, Choice>>;

template <class Choice>
std::string names_of(const Choices<Choice>& choices) {
  std::string names;
  for (const auto& [name, choice] : choices) {
    names += names.empty() ? str_cat("one of ", name) : str_cat(", ", name);
  }
  return names;
}

template <class Choice>
OptionRow chosen(std::string_view name, Choice Options::* member, const Choices<Choice>& choices) {
  const auto get = [member, choices](const Options& options) -> OptionValue {
    for (const auto& [each, choice] : choices) {
      if (choice == options.*member) {
        return each;
      }
    }
    return {};
  };
  const auto set = [member, choices](Options& options, const OptionValue& value) {
    const std::string* const given = std::get_if<std::string>(&value);
    if (given == nullptr) {
      return OptionCheck::kWrongType;
    }
    for (const auto& [each, choice] : choices) {
      if (each == *given) {
        options.*member = choice;
        return OptionCheck::kGood;
      }
    }
    return OptionCheck::kNotAllowed;
  };
  return {.name = name, .allowed = names_of(choices), .get = get, .set = set};
}

OptionRow text(std::string_view name, std::string allowed, std::string Options::* member) {
  return row<std::string>(name, std::move(allowed), member,
                          [](std::string& into, const OptionValue& value) {
                            const auto* const given = std::get_if<std::string>(&value);
                            if (given == nullptr) {
                              return OptionCheck::kWrongType;
                            }
                            into = *given;
                            return OptionCheck::kGood;
                          });
}

OptionRow policy_row() {
  Choices<std::string> names;
  for (const PolicyInfo& policy : policies()) {
    names.emplace_back(policy.name, policy.name);
  }
  return chosen("policy", &Options::policy, names);
}

OptionRow oracle_row() {
  return {.name = "oracle",
          .allowed = "four numbers from 0 to 8",
          .get =
              [](const Options& options) {
                const OracleOptions& is = options.oracle;
                return std::array{is.cost, is.size, is.distance, is.ancestors};
              },
          .set =
              [](Options& options, const OptionValue& value) {
                const auto* const given = std::get_if<std::array<double, 4>>(&value);
                if (given == nullptr) {
                  return OptionCheck::kWrongType;
                }
                const auto& [cost, size, distance, ancestors] = *given;
                for (const double each : *given) {
                  if (!(each >= 0 && each <= 8)) {
                    return OptionCheck::kNotAllowed;
                  }
                }
                options.oracle = {
                    .cost = cost, .size = size, .distance = distance, .ancestors = ancestors};
                return OptionCheck::kGood;
              }};
}

std::vector<OptionRow> make_rows() {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  return {
      whole("budget_bytes", &Options::budget, 1, kMostInOption),
      policy_row(),
      flag("small_filter", &Options::small_filter),
      flag("sampling", &Options::sampling),
      flag("kinetic", &Options::kinetic),
      flag("chain_cost", &Options::chain_cost),
      whole("seed", &Options::seed, 0, std::numeric_limits<std::uint64_t>::max()),
      oracle_row(),
      flag("usefulness", &Options::usefulness),
      flag("reuse_operands", &Options::reuse_operands),
      chosen("replay_order", &Options::replay_order,
             Choices<ReplayOrder>{{"memory", ReplayOrder::kMemory},
                                  {"recursive", ReplayOrder::kRecursive}}),
      real("max_replay_ratio", "a number above 0, or 0 for no bound", &Options::max_replay_ratio, 0,
           kInfinity),
      real("max_slowdown", "a number above 0, or 0 for no bound", &Options::max_slowdown, 0,
           kInfinity),
      chosen("planning", &Options::planning,
             Choices<Planning>{{"off", Planning::kOff},
                               {"wait", Planning::kWait},
                               {"background", Planning::kBackground}}),
      chosen("in_place", &Options::in_place,
             Choices<InPlace>{{"share", InPlace::kShare}, {"copy", InPlace::kCopy}}),
      chosen("placement", &Options::placement,
             Choices<Placement>{{"best-fit", Placement::kBestFit},
                                {"two-ended", Placement::kTwoEnded}}),
      whole("block_size_bytes", &Options::block_size, 0, kMostInOption),
      whole("address_bytes", &Options::addresses, 0, kMostInOption),
      whole("small_result_bytes", &Options::small_result_bytes, 0, kMostInOption),
      whole("max_depth", &Options::max_depth, 1, std::numeric_limits<std::int32_t>::max()),
      chosen("cost_model", &Options::cost_model,
             Choices<CostModel>{{"measured", CostModel::kMeasured}, {"bytes", CostModel::kBytes}}),
      real("move_ns_per_byte", "a number from 0.001 to 1,000,000, or None",
           &Options::move_ns_per_byte, 1e-3, 1e6),
      whole("spill_bytes", &Options::spill, 0, kMostInOption),
      whole("spill_unit_bytes", &Options::spill_unit, 1, kMostInOption),
      text("spill_dir", "a directory", &Options::spill_dir),
      whole("page_window_bytes", &Options::page_window, 0, kMostInOption),
      real("spill_write_ns_per_byte", "a number from 0.001 to 1,000,000, or None",
           &Options::spill_write_ns_per_byte, 1e-3, 1e6),
      real("spill_read_ns_per_byte", "a number from 0.001 to 1,000,000, or None",
           &Options::spill_read_ns_per_byte, 1e-3, 1e6),
      real("spill_request_ns", "a number from 0 to 1,000,000,000, or None",
           &Options::spill_request_ns, 0, 1e9),
      flag("evict_after_op", &Options::evict_after_op),
      flag("check_replays", &Options::check_replays),
  };
}

}  // namespace

std::span<const OptionRow> option_rows() {
  static const std::vector<OptionRow> rows = make_rows();
  return rows;
}

}  // namespace recoup::detail
