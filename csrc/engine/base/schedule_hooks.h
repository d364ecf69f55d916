// Follows a schedule while a program runs: what to get back before an op, what to drop after it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "csrc/engine/base/op.h"
#include "recoup/types.h"

namespace recoup::detail {

// A recorded value, however often its id has been used again. Invalid for a non-recomputable value.
struct ValueTicket {
  ValueId value;
  std::uint64_t made_by = 0;  // its op's number among all that were recorded
};

// Called under the engine's lock.
class ScheduleHooks {
 public:
  virtual ~ScheduleHooks() = default;

  // An op of the program is about to begin. It may tell the engine to restore and keep values.
  virtual void before_op(std::string_view name, std::span<const Operand> operands) = 0;
  // It has ended, and its operands are free again. May tell the engine to drop and keep values.
  virtual void after_op() = 0;
  // Whether a value that a replay has passed through is to stay; those that it does not know are.
  [[nodiscard]] virtual bool keeps(const ValueTicket& ticket) const = 0;
};

}  // namespace recoup::detail
