// Formatting of sizes.
#include "csrc/base/strings.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>

namespace recoup::detail {
namespace {

TEST(Strings, ShortTextsHaveOneDecimal) {
  EXPECT_EQ(short_text(Bytes(0)), "0 B");
  EXPECT_EQ(short_text(Bytes(1023)), "1023 B");
  EXPECT_EQ(short_text(Bytes(1024)), "1.0 KiB");
  EXPECT_EQ(short_text(Bytes(1536)), "1.5 KiB");
  EXPECT_EQ(short_text(Bytes((1 << 20) - 1)), "1.0 MiB");
  EXPECT_EQ(short_text(Bytes(std::int64_t{5} << 50)), "5120.0 TiB");
}

TEST(Strings, ShortSizesHaveThreeDigits) {
  EXPECT_EQ(short_size(Bytes(7)), "7B");
  EXPECT_EQ(short_size(Bytes(1000)), "0.98KiB");
  EXPECT_EQ(short_size(Bytes(1024)), "1KiB");
  EXPECT_EQ(short_size(Bytes(1025)), "1.01KiB");
  EXPECT_EQ(short_size(Bytes(1536)), "1.5KiB");
  EXPECT_EQ(short_size(Bytes(44'000'128)), "42MiB");
  EXPECT_EQ(short_size(Bytes(std::int64_t{3} << 29)), "1.5GiB");
}

// So that a suggested budget is never below the exact one.
TEST(Strings, ShortSizesAreRoundedUp) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 100'000; ++i) {
    const auto exact = static_cast<std::int64_t>(random() >> (2 + random() % 61));
    const std::string text = short_size(Bytes(exact));
    const std::size_t unit_at = text.find_first_not_of("0123456789.");
    const std::string unit = text.substr(unit_at);
    const int power = unit == "B"     ? 0
                      : unit == "KiB" ? 1
                      : unit == "MiB" ? 2
                      : unit == "GiB" ? 3
                                      : 4;
    const long double size = std::stold(text.substr(0, unit_at)) * std::pow(1024.0L, power);
    EXPECT_GE(size, static_cast<long double>(exact) * (1 - 1e-15L)) << text;
    EXPECT_LE(size, static_cast<long double>(exact) * 1.0111L + 1) << text;
  }
}

}  // namespace
}  // namespace recoup::detail
