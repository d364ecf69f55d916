// ScheduleHooks: follows a schedule while a program runs. It says what to restore before an op and
// what to drop after it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "csrc/engine/base/op.h"
#include "recoup/types.h"

namespace recoup::detail {

// Identifies a recorded value, even if its id is used again. Invalid for a non-recomputable value.
struct ValueTicket {
  ValueId value;
  std::uint64_t made_by = 0;  // sequence number of its producer
};

// All methods are called under the engine's lock.
class ScheduleHooks {
 public:
  virtual ~ScheduleHooks() = default;

  // An op of the program is about to begin. May call the engine to restore and keep values.
  virtual void before_op(std::string_view name, std::span<const Operand> operands) = 0;
  // The op has ended and its operands are unpinned. May call the engine to drop and keep values.
  virtual void after_op() = 0;
  // Whether a value that a replay has made for its own use stays. True for values that the schedule
  // does not know.
  [[nodiscard]] virtual bool keeps(const ValueTicket& ticket) const = 0;
};

}  // namespace recoup::detail
