// Items: blocks with known lifetimes, as the planners of layouts see them.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "recoup/api.h"

namespace recoup::detail {

// A size or an offset in units of the alignment.
using Units = std::int64_t;

// A *section* is a longest set of buffers that are live together; sections are numbered in the
// order of time. Two buffers are live together exactly when they share a section, and there are
// never more sections than buffers.
//
//   a  +-----+                     sections 0 {a, b}, 1 {b, c}:
//   b     +---------+              a is in [0, 1), b in [0, 2), c in [1, 2)
//   c            +-----+
struct LayoutItem {
  std::int32_t lower = 0;  // [lower, upper) in sections
  std::int32_t upper = 0;
  Units size = 0;  // > 0

  [[nodiscard]] bool overlaps(const LayoutItem& other) const {
    return lower < other.upper && other.lower < upper;
  }
  [[nodiscard]] std::int32_t width() const { return upper - lower; }
};

// nullopt: no deadline.
using Deadline = std::optional<std::chrono::steady_clock::time_point>;

// Reads the clock on every 16th call only.
class Overtime {
 public:
  explicit Overtime(const Deadline& deadline) : deadline_(deadline) {}
  // Whether the deadline has passed, as of the last reading of the clock.
  [[nodiscard]] bool now() {
    constexpr int kCallsPerLook = 16;
    return deadline_ && ++calls_ % kCallsPerLook == 0 &&
           std::chrono::steady_clock::now() >= *deadline_;
  }

 private:
  const Deadline deadline_;
  int calls_ = 0;
};

struct LayoutInput {
  std::vector<LayoutItem> items;  // in the order of birth
  std::int32_t sections = 0;
  Units bound = 0;
  // By section: units below the capacity that are taken already; empty: none.
  std::vector<Units> taken;
  // For planners that search: the size at which to stop, and limits.
  Units target = 0;
  bool target_is_given = false;  // `target` is a capacity from the caller, not only the bound
  Deadline deadline;
  std::int64_t node_limit = 0;  // 0: none
};

struct LayoutPlacement {
  std::vector<Units> offsets;  // by item
  Units size = 0;              // the largest end of an item
  Units least = 0;             // lower bound proved by search; 0: only LayoutInput::bound is known
  std::int64_t nodes = 0;
};

// The largest end of an item, with `items` at `offsets`.
RECOUP_API Units height(std::span<const LayoutItem> items, std::span<const Units> offsets);

}  // namespace recoup::detail
