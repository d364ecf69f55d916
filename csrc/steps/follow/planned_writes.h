// PlannedWrites: writes of the values that a step spills, as soon as their content is made.
#pragma once

#include <cstddef>
#include <deque>
#include <span>
#include <vector>

#include "csrc/engine/program/engine.h"
#include "csrc/steps/follow/eviction_list.h"
#include "csrc/steps/track/step_log.h"

namespace recoup::detail {

class PlannedWrites {
 public:
  explicit PlannedWrites(const EvictionList& list);

  // Whether the step spills the value.
  [[nodiscard]] bool contains(const Made& value) const;
  // The step begins. Content from before it that it spills is written unless the tier has a copy.
  void begin(const StepLog& step, const Engine& engine);
  // An op of the step has ended. What it made is written if this run or the next one spills it.
  void end_op(const StepLog& step, const Engine& engine, std::span<const Operand> operands,
              std::span<const StorageId> fresh);
  // The next value to write; invalid: none. Each one is returned once.
  [[nodiscard]] ValueId next(const Engine& engine);

 private:
  std::vector<Made> spilled_;  // ascending
  std::vector<Made> before_;   // those from before the step, in the order in which they are spilled
  std::deque<PinTicket> changed_;
};

}  // namespace recoup::detail
