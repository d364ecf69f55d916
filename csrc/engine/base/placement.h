// Placer: at which end of a free block an allocation is placed. This is Coop's cheap tensor
// partitioning (section 3.3), with measured cost densities instead of a list of op names.
//
//   |small, persistent|expensive ->            free            <- cheap|
//
// The cost density of an op is its time divided by the bytes that it makes. Values of similar
// density lie next to each other, so a window of cheap values is long before an expensive one cuts
// it.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "csrc/base/hash.h"
#include "csrc/pool/pool.h"
#include "recoup/options.h"
#include "recoup/types.h"

namespace recoup::detail {

class Placer {
 public:
  Placer(Placement kind, Bytes budget) : kind_(kind), budget_(budget) {}

  // Takes over what `other` has learned.
  void learn_from(const Placer& other) {
    all_ = other.all_;
    kinds_ = other.kinds_;
    recent_ = {};
  }
  // The following allocations are for an op of the program.
  void begin(std::string_view op);
  void end() { expensive_ = false; }
  // The following allocations are for a replay of an op with this cost and this size of results.
  void begin_replay(Nanoseconds cost, Bytes made);
  // An op of the program has finished and made new values.
  void learn(std::string_view op, Nanoseconds cost, Bytes made);

  // Small blocks go to the low end, so that they do not fragment the rest.
  [[nodiscard]] Zone zone(Bytes size) const {
    return size.count() * 512 <= budget_.count() || expensive_ ? Zone::kLow : Zone::kHigh;
  }
  void set_budget(Bytes budget) { budget_ = budget; }

 private:
  struct Density {
    double cost = 0;
    double bytes = 0;
    // Whether a byte costs more here than in `other`.
    [[nodiscard]] bool above(const Density& other) const {
      return cost * other.bytes > other.cost * bytes;
    }
  };

  using Kind = std::pair<const std::string, Density>;
  // Null if the op has not been measured.
  Kind* find(std::string_view op);

  Placement kind_;
  Bytes budget_;
  bool expensive_ = false;  // whether the current op's results are expensive
  Density all_;
  std::unordered_map<std::string, Density, TextHash, std::equal_to<>> kinds_;  // by op name
  std::array<Kind*, 64> recent_{};  // cache, indexed by the name's address
};

}  // namespace recoup::detail
