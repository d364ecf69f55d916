// NumericTier: a spill tier in memory that checks how it is used.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <stdexcept>
#include <vector>

#include "csrc/engine/base/tier_store.h"

namespace recoup::detail {

class FetchFailed : public std::runtime_error {
 public:
  FetchFailed() : std::runtime_error("the spill tier cannot be read") {}
};

class NumericTier final : public TierStore {
 public:
  static constexpr std::uint8_t kUnwritten = 0xdd;
  static constexpr std::uint8_t kUnread = 0xee;

  // The write or read of number `k` from now on fails.
  void fail_write(std::int64_t k) { write_fault_ = k; }
  void fail_read(std::int64_t k) { read_fault_ = k; }

  // The bytes are copied at the end of the write. They must not change in between.
  void begin_write(Bytes to, const void* from, Bytes size) override {
    const auto end = static_cast<std::size_t>((to + size).count());
    bytes_.resize(std::max(bytes_.size(), end), kUnwritten);
    std::fill_n(bytes_.begin() + to.count(), size.count(), kUnread);
    const auto* const source = static_cast<const std::uint8_t*>(from);
    EXPECT_TRUE(writes_.emplace(to.count(), Write{source, {source, source + size.count()}}).second);
  }
  [[nodiscard]] bool end_write(Bytes to) override {
    const auto found = writes_.find(to.count());
    const Write write = std::move(found->second);
    writes_.erase(found);
    EXPECT_TRUE(std::equal(write.content.begin(), write.content.end(), write.from));
    if (write_fault_ > 0 && --write_fault_ == 0) {
      return false;
    }
    std::copy(write.content.begin(), write.content.end(), bytes_.begin() + to.count());
    return true;
  }
  // A copy that the engine asks about must be equal.
  [[nodiscard]] bool holds(Bytes place, const void* bytes, Bytes size) const override {
    const auto* const content = static_cast<const std::uint8_t*>(bytes);
    EXPECT_TRUE(std::equal(content, content + size.count(), bytes_.begin() + place.count()));
    return true;
  }
  void begin_read(void* to, Bytes from, Bytes size) override {
    EXPECT_FALSE(writes_.contains(from.count()));
    auto* const target = static_cast<std::uint8_t*>(to);
    EXPECT_TRUE(reads_.emplace(from.count(), Read{target, size}).second);
    std::fill_n(target, size.count(), kUnread);
  }
  void end_read(Bytes from) override {
    const auto found = reads_.find(from.count());
    const Read read = found->second;
    reads_.erase(found);
    if (read_fault_ > 0 && --read_fault_ == 0) {
      throw FetchFailed();
    }
    std::copy_n(bytes_.begin() + from.count(), read.size.count(), read.to);
  }
  [[nodiscard]] std::optional<TierSpeed> speed() override {
    return TierSpeed{.each = Nanoseconds(10)};
  }

 private:
  struct Write {
    const std::uint8_t* from;
    std::vector<std::uint8_t> content;
  };
  struct Read {
    std::uint8_t* to;
    Bytes size;
  };
  std::vector<std::uint8_t> bytes_;
  std::map<std::int64_t, Write> writes_;  // pending, by offset
  std::map<std::int64_t, Read> reads_;
  std::int64_t write_fault_ = 0;
  std::int64_t read_fault_ = 0;
};

}  // namespace recoup::detail
