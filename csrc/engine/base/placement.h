// At which end of a free block an allocation goes: Coop's cheap tensor partitioning (section 3.3),
// with densities that are measured and not a list of op names.
//
//   |small, persistent|expensive ->            free            <- cheap|
//
// The cost density of an op is its time over the bytes that it makes. Values of one density lie
// side by side then, so a window of cheap ones is long before an expensive one cuts it.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "csrc/pool/pool.h"
#include "recoup/options.h"
#include "recoup/types.h"

namespace recoup::detail {

class Placer {
 public:
  Placer(Placement kind, Bytes budget) : kind_(kind), budget_(budget) {}

  // Places from now on as one that has learned what `other` has.
  void learn_from(const Placer& other) {
    all_ = other.all_;
    kinds_ = other.kinds_;
    recent_ = {};
  }
  // What is allocated from now on is for an op of the program.
  void begin(std::string_view op);
  void end() { expensive_ = false; }
  // It is for a replay of an op that cost that much and makes that many bytes.
  void begin_replay(Nanoseconds cost, Bytes made);
  // An op of the program has made new values.
  void learn(std::string_view op, Nanoseconds cost, Bytes made);

  // Small blocks at the low end, so that they do not cut the rest into pieces.
  [[nodiscard]] Zone zone(Bytes size) const {
    return size.count() * 512 <= budget_.count() || expensive_ ? Zone::kLow : Zone::kHigh;
  }
  void set_budget(Bytes budget) { budget_ = budget; }

 private:
  struct Density {
    double cost = 0;
    double bytes = 0;
    // Whether a byte of it costs more than one of `other`.
    [[nodiscard]] bool above(const Density& other) const {
      return cost * other.bytes > other.cost * bytes;
    }
  };
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const {
      return std::hash<std::string_view>()(text);
    }
  };

  using Kind = std::pair<const std::string, Density>;
  // Null when nothing is known of it.
  Kind* find(std::string_view op);

  Placement kind_;
  Bytes budget_;
  bool expensive_ = false;  // what is allocated now
  Density all_;
  std::unordered_map<std::string, Density, Hash, std::equal_to<>> kinds_;  // by op name
  std::array<Kind*, 64> recent_{};  // by where a name is: most stay where they are
};

}  // namespace recoup::detail
