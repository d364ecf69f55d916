// CostMemory: the measured run times of ops, by kind of op.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>

#include "recoup/types.h"

namespace recoup::detail {

// A hash that identifies a kind of op: all runs of a kind are expected to take equally long. 0: the
// op has no kind, and its time is not learned.
using CostKey = std::uint64_t;

struct Measurement {
  CostKey key = 0;
  Nanoseconds took{0};
};

// Note [Costs are learned]
// A single measurement is unreliable: on a busy machine a third of all ops are off by more than
// half, and a policy picks those whose cost is underestimated most. Training runs the same ops
// again and again. So the cost of an op is the median of the last measurements of its kind, replays
// included. The cost of a value is fixed when its op is recorded, so that sums over neighborhoods
// stay right.
//
// When the table is full, the older half of the kinds is forgotten at once: those that were not
// measured for longest.
class CostMemory {
 public:
  // Number of measurements per kind that enter the median.
  static constexpr std::size_t kLast = 8;

  // `kinds`: approximate number of kinds to remember.
  explicit CostMemory(std::size_t kinds = std::size_t{1} << 16) : half_(kinds / 2) {}

  // Adds a measurement and returns the new cost of the kind: the median of the last measurements.
  // With an even number of them the lower middle one is taken, because disturbances only make a
  // measurement longer.
  Nanoseconds learn(CostKey kind, Nanoseconds measured);
  // The current cost of a kind; nullopt if it was never measured or is forgotten.
  [[nodiscard]] std::optional<Nanoseconds> belief(CostKey kind) const;
  [[nodiscard]] std::size_t kinds() const { return young_.size() + old_.size(); }
  [[nodiscard]] std::size_t memory() const;

 private:
  struct Row {
    std::array<Nanoseconds, kLast> last{};
    std::uint32_t count = 0;  // number of measurements so far
    Nanoseconds median{0};
  };
  using Table = std::unordered_map<CostKey, Row>;
  Row& row_of(CostKey kind);

  std::size_t half_;
  Table young_;
  Table old_;  // kinds that were last measured before all of those in young_
};

}  // namespace recoup::detail
