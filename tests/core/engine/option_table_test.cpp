#include "csrc/engine/base/option_table.h"

#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <span>

namespace recoup::detail {
namespace {

const OptionRow& row_of(std::string_view name) {
  for (const OptionRow& row : option_rows()) {
    if (row.name == name) {
      return row;
    }
  }
  throw std::invalid_argument("no such option");
}

Options some_options() {
  Options options;
  options.budget = 1_MiB;
  return options;
}

struct Case {
  std::string_view name;
  OptionValue value;
};

void expect_refused(std::span<const Case> cases, OptionCheck why) {
  for (const Case& each : cases) {
    Options options = some_options();
    const OptionRow& row = row_of(each.name);
    const OptionValue before = row.get(options);
    EXPECT_EQ(row.set(options, each.value), why) << each.name;
    EXPECT_EQ(row.get(options), before) << each.name;
  }
}

TEST(OptionTable, NamesAreDistinct) {
  std::set<std::string_view> names;
  for (const OptionRow& row : option_rows()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_FALSE(row.allowed.empty()) << row.name;
  }
}

TEST(OptionTable, AReadValueCanBeSet) {
  Options options = some_options();
  for (const OptionRow& row : option_rows()) {
    const OptionValue before = row.get(options);
    EXPECT_EQ(row.set(options, before), OptionCheck::kGood) << row.name;
    EXPECT_EQ(row.get(options), before) << row.name;
  }
}

TEST(OptionTable, WrongTypesSetNothing) {
  const Case cases[] = {{"budget_bytes", 1.5},
                        {"budget_bytes", true},
                        {"policy", std::int64_t{1}},
                        {"check_replays", std::int64_t{1}},
                        {"check_replays", OptionValue()},
                        {"sampling", std::string("yes")},
                        {"seed", std::string("1")},
                        {"move_ns_per_byte", std::string("1")},
                        {"max_replay_ratio", {}},
                        {"oracle", 1.0},
                        {"placement", OptionValue()},
                        {"max_depth", 3.0}};
  expect_refused(cases, OptionCheck::kWrongType);
}

TEST(OptionTable, ValuesBeyondTheBoundsSetNothing) {
  const double not_a_number = std::numeric_limits<double>::quiet_NaN();
  const Case cases[] = {{"budget_bytes", std::int64_t{0}},
                        {"budget_bytes", std::uint64_t{1} << 63},
                        {"policy", std::string("mru")},
                        {"seed", std::int64_t{-1}},
                        {"max_depth", std::int64_t{0}},
                        {"max_depth", std::int64_t{1} << 31},
                        {"max_replay_ratio", -1.0},
                        {"max_replay_ratio", not_a_number},
                        {"max_slowdown", -1.0},
                        {"max_slowdown", not_a_number},
                        {"move_ns_per_byte", 0.0},
                        {"move_ns_per_byte", not_a_number},
                        {"in_place", std::string("move")},
                        {"oracle", std::array{1.0, 1.0, 1.0, 9.0}}};
  expect_refused(cases, OptionCheck::kNotAllowed);
}

TEST(OptionTable, UnsetOptionsCanBeUnsetAgain) {
  Options options = some_options();
  const OptionRow& row = row_of("sampling");
  EXPECT_EQ(row.set(options, true), OptionCheck::kGood);
  EXPECT_EQ(options.sampling, true);
  EXPECT_EQ(row.set(options, OptionValue()), OptionCheck::kGood);
  EXPECT_EQ(options.sampling, std::nullopt);
}

}  // namespace
}  // namespace recoup::detail
