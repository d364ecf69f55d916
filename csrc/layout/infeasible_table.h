// InfeasibleTable: parts of a search that are known to be infeasible, by a 128-bit hash.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace recoup::detail {

// Of fixed size; a new entry replaces the previous one in its slot. The probability that two
// different parts of the longest search have the same key is about 2^-100.
class InfeasibleTable {
 public:
  // `slots`: a power of two. A slot has 16 bytes.
  explicit InfeasibleTable(std::size_t slots) : slots_(slots) {}

  struct Key {
    std::uint64_t high = 0;
    std::uint64_t low = 0;
    friend bool operator==(const Key&, const Key&) = default;

    // The order of additions does not matter.
    void add(std::uint64_t what, std::uint64_t value) {
      high += mixed(mixed(what ^ 0x9e3779b97f4a7c15ULL) + value);
      low += mixed(mixed(what + 0xd1b54a32d192ed03ULL) ^ value);
    }
  };

  [[nodiscard]] bool contains(const Key& key) const {
    return !keys_.empty() && keys_[slot(key)] == key;
  }
  void insert(const Key& key) {
    if (keys_.empty()) {
      keys_.resize(slots_);
    }
    keys_[slot(key)] = key;
  }
  void clear() { keys_.clear(); }

 private:
  // The finalizer of MurmurHash3.
  static std::uint64_t mixed(std::uint64_t x) {
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdULL;
    x ^= x >> 33;
    x *= 0xc4ceb9fe1a85ec53ULL;
    return x ^ x >> 33;
  }
  [[nodiscard]] std::size_t slot(const Key& key) const { return key.low & (slots_ - 1); }

  std::size_t slots_;
  std::vector<Key> keys_;
};

}  // namespace recoup::detail
