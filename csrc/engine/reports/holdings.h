// Holdings: who held which part of the charged bytes at one instant.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "csrc/engine/program/engine.h"
#include "recoup/attribution.h"

namespace recoup::detail {

class Holdings {
 public:
  // As things are now, in the place of what was taken before. A walk over all values.
  void take(const Engine& engine, const MakerTable& makers);
  // The storage of that birth has a name, which was not known when this was taken.
  void name(std::uint64_t birth, NameId name);
  [[nodiscard]] Bytes charged() const { return charged_; }
  // All of them together are `charged()`.
  [[nodiscard]] const std::vector<Holding>& rows() const { return rows_; }
  // Adds them up; throws InternalError.
  void check() const;

 private:
  Bytes charged_{0};
  std::vector<Holding> rows_;
  // Of the rows without a name, by the birth of their storage; made when it is asked for.
  std::unordered_map<std::uint64_t, std::size_t> nameless_;
  bool nameless_known_ = false;
};

// Whether the bytes of a value are charged under it: in the pool, or outside of it and not among
// those that Options::outside has.
[[nodiscard]] inline bool has_charged_bytes(const Value& value) {
  return value.block.valid() || (value.external != nullptr && !value.among_outside);
}

}  // namespace recoup::detail
