// CostMemory: what ops of a kind took, each time that one was measured.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>

#include "recoup/types.h"

namespace recoup::detail {

// What runs of an op have in common that take equally long: a hash. 0: none, nothing is learned.
using CostKey = std::uint64_t;

struct Measurement {
  CostKey key = 0;
  Nanoseconds took{0};
};

// Note [Costs are learned]
// One measurement says little: on a busy machine a third of all ops are off by more than half, and
// the cheapest lie is what a policy picks. Training runs the same ops again and again. So what an
// op costs is the median of the last measurements of its kind, replays among them. The cost of a
// value is fixed when its op is recorded, so that sums over neighborhoods stay right.
//
// Kinds that were not met for long are forgotten, those of the older half at once.
class CostMemory {
 public:
  // Of so many measurements.
  static constexpr std::size_t kLast = 8;

  // `kinds`: about so many are remembered.
  explicit CostMemory(std::size_t kinds = std::size_t{1} << 16) : half_(kinds / 2) {}

  // One more measurement. Returns what the kind is believed to cost now: the median of the last
  // ones, of two in the middle the lower, for what disturbs a measurement makes it longer.
  Nanoseconds learn(CostKey kind, Nanoseconds measured);
  // None of a kind that was not met.
  [[nodiscard]] std::optional<Nanoseconds> belief(CostKey kind) const;
  [[nodiscard]] std::size_t kinds() const { return young_.size() + old_.size(); }
  [[nodiscard]] std::size_t memory() const;

 private:
  struct Row {
    std::array<Nanoseconds, kLast> last{};
    std::uint32_t count = 0;  // of all measurements
    Nanoseconds median{0};
  };
  using Table = std::unordered_map<CostKey, Row>;
  Row& row_of(CostKey kind);

  std::size_t half_;
  Table young_;
  Table old_;  // met before all of those in young_
};

}  // namespace recoup::detail
