// PlannedVictims: a plan of evictions that takes precedence over the policy and knows the coming
// ops.
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

// All methods are called under the engine's lock.
class PlannedVictims {
 public:
  virtual ~PlannedVictims() = default;

  // An op of the program is about to begin. None of its operands has been restored yet.
  virtual void before_op(std::string_view name, std::span<const Operand> operands) = 0;
  // The op cannot begin, because its operands do not fit.
  virtual void on_no_op() = 0;
  // The next planned victim: a candidate, the same one until it ceases to be one. Invalid: the
  // policy decides.
  [[nodiscard]] virtual ValueId next() const = 0;
  // Called when enough bytes are free, but fragmented. The price limit up to which blocks are to be
  // moved now, before next() is evicted; nullopt: the plan has no move here.
  [[nodiscard]] virtual std::optional<Nanoseconds> moves_next() const { return std::nullopt; }
  // Blocks were moved for an allocation, by plan or because that was cheapest.
  virtual void on_room_by_moves() {}
  // The simulated trace says that this plan is in force from now on.
  virtual void on_recorded(const TracePlan& /*plan*/,
                           std::span<const TraceEviction> /*evictions*/) {}
  // Adds the storages that the op `n` ops after the running one will use. False: they are not
  // known.
  [[nodiscard]] virtual bool uses_ahead(std::uint32_t /*n*/,
                                        std::vector<StorageId>& /*storages*/) const {
    return false;
  }
  // The number of ops from the running one to the next use of the storage; nullopt: unknown.
  [[nodiscard]] virtual std::optional<std::uint32_t> next_use(StorageId /*storage*/) const {
    return std::nullopt;
  }
  // A value that the program's step will spill later, which can be written now and has no copy in
  // the tier. Each value is returned once. Invalid: none is known.
  [[nodiscard]] virtual ValueId next_to_write() { return {}; }
  // The share of the time of a copy that the program is expected to wait for, in (0, 1].
  [[nodiscard]] virtual double waited_share() const { return 1; }
  // Whether planning in the background slows down what is measured now.
  [[nodiscard]] virtual bool disturbs() const { return false; }
  // Adds the plan's counters.
  virtual void add_to(Stats& /*stats*/) const {}
};

}  // namespace recoup::detail
