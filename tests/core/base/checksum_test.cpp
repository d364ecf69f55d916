// Checksums do not depend on the processor's vector instructions.
#include "csrc/disk/checksum.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

namespace recoup::detail {
namespace {

TEST(Checksum, IsTheSameWithAnyInstructions) {
  std::mt19937_64 random(1);
  std::vector<std::uint8_t> bytes((std::size_t{1} << 20) + 64);
  for (std::uint8_t& byte : bytes) {
    byte = static_cast<std::uint8_t>(random());
  }
  // All lengths of XXH3's short forms, then whole and partial stripes, at unaligned addresses.
  for (std::int64_t size = 0; size < 2100; ++size) {
    const std::uint8_t* const from = bytes.data() + size % 7;
    ASSERT_EQ(checksum(from, size), portable_checksum(from, size)) << size;
  }
  for (const std::int64_t size : {4096, 65537, 1 << 20}) {
    ASSERT_EQ(checksum(bytes.data() + 3, size), portable_checksum(bytes.data() + 3, size)) << size;
  }
}

// The value of XXH3_64bits for no bytes, from its specification.
TEST(Checksum, IsXxh3) { EXPECT_EQ(checksum(nullptr, 0), 0x2D06800538D394C2U); }

TEST(Checksum, DependsOnEachBit) {
  std::vector<std::uint8_t> bytes(3000);
  const std::uint64_t before = checksum(bytes.data(), 3000);
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    bytes[at] = 1;
    EXPECT_NE(checksum(bytes.data(), 3000), before) << at;
    bytes[at] = 0;
  }
}

}  // namespace
}  // namespace recoup::detail
