// Holdings: which value holds which part of the charged bytes at one instant.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "csrc/engine/program/engine.h"
#include "recoup/attribution.h"

namespace recoup::detail {

class Holdings {
 public:
  // Records the current holdings and discards earlier ones. Walks over all values.
  void take(const Engine& engine, const MakerTable& makers);
  // Sets the name of the storage with that birth, if it had none when this was taken.
  void name(std::uint64_t birth, NameId name);
  [[nodiscard]] Bytes charged() const { return charged_; }
  // Their sizes add up to charged().
  [[nodiscard]] const std::vector<Holding>& rows() const { return rows_; }
  // Checks the sum; throws InternalError.
  void check() const;

 private:
  Bytes charged_{0};
  std::vector<Holding> rows_;
  // Indices of the rows without a name, by the birth of their storage; built on demand.
  std::unordered_map<std::uint64_t, std::size_t> nameless_;
  bool nameless_known_ = false;
};

// Whether a value's bytes are charged as its own: in the pool, or outside of it and not among
// Options::outside.
[[nodiscard]] inline bool has_charged_bytes(const Value& value) {
  return value.block.valid() || (value.external != nullptr && !value.flags.among_outside);
}

}  // namespace recoup::detail
