// PlannedVictims: names victims before the policy is asked, and knows what comes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "csrc/engine/base/op.h"
#include "recoup/stats.h"
#include "recoup/trace.h"
#include "recoup/types.h"

namespace recoup::detail {

// Called under the engine's lock.
class PlannedVictims {
 public:
  virtual ~PlannedVictims() = default;

  // An op of the program is about to begin; nothing has been brought back for it yet.
  virtual void before_op(std::string_view name, std::span<const Operand> operands) = 0;
  // It does not begin, for what it needs does not fit.
  virtual void on_no_op() = 0;
  // A candidate, the same one until it is none any more; invalid: the policy decides.
  [[nodiscard]] virtual ValueId next() const = 0;
  // Enough is free, but in pieces: blocks are to be moved now, before that candidate goes, if that
  // costs no more. Nothing: no.
  [[nodiscard]] virtual std::optional<Nanoseconds> moves_next() const { return std::nullopt; }
  // Blocks were moved for an allocation, because that says so or because it is cheapest.
  virtual void on_room_by_moves() {}
  // A trace says that this is in force from now on.
  virtual void on_recorded(const TracePlan& /*plan*/,
                           std::span<const TraceEviction> /*evictions*/) {}
  // Adds what the op will use that comes `n` ops after the running one; false: that is not known.
  [[nodiscard]] virtual bool uses_ahead(std::uint32_t /*n*/,
                                        std::vector<StorageId>& /*storages*/) const {
    return false;
  }
  // How many ops from the running one the storage is used next, if that is known.
  [[nodiscard]] virtual std::optional<std::uint32_t> next_use(StorageId /*storage*/) const {
    return std::nullopt;
  }
  // What is measured now takes longer than it would.
  [[nodiscard]] virtual bool disturbs() const { return false; }
  // Adds what it has done.
  virtual void add_to(Stats& /*stats*/) const {}
};

}  // namespace recoup::detail
