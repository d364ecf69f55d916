// LastUses: from when on a simulated run no longer uses the values that it evicts.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "csrc/base/by_id.h"
#include "csrc/engine/program/engine.h"
#include "csrc/steps/place/block_log.h"

namespace recoup::detail {

// Times are numbers of lives in the log that have begun.
class LastUses {
 public:
  // Both arguments must outlive it.
  LastUses(const Engine& engine, const BlockLog& log) : engine_(engine), log_(log) {}

  [[nodiscard]] std::uint32_t now() const {
    return static_cast<std::uint32_t>(log_.lives().size());
  }
  void end_op(std::span<const Operand> operands, std::span<const StorageId> fresh);
  void begin_replay(const Op& op);
  // When a resident value that is evicted now could have been evicted at the earliest. `spills`: to
  // the spill tier, which must have a copy.
  [[nodiscard]] std::uint32_t earliest(ValueId value, bool spills);

 private:
  void end_uses();
  void note_writes();

  const Engine& engine_;
  const BlockLog& log_;
  std::vector<ValueId> in_use_;                         // by what runs
  ById<ValueId, std::uint32_t> used_;                   // time when its last use ended
  std::unordered_map<ValueId, std::uint32_t> written_;  // time since which the tier has a copy
};

}  // namespace recoup::detail
