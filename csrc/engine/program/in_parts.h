// InParts: runs ops on lists in parts, after it has ensured that all parts fit.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "csrc/engine/base/op.h"
#include "csrc/engine/reclaim/importer.h"
#include "csrc/engine/reclaim/room.h"
#include "csrc/engine/replay/freezer.h"
#include "csrc/engine/replay/replayer.h"
#include "csrc/engine/state/context.h"
#include "csrc/engine/state/out_of_budget.h"
#include "csrc/engine/state/values.h"
#include "csrc/engine/tier/spiller.h"

namespace recoup::detail {

// Note [Parts]
// An op on lists (an optimizer's step for all parameters) that runs in parts may fail half way,
// where it would not have begun as a whole. So before the first part:
//
//   1. Every value that will be written is detached: it is non-recomputable and has no dependents.
//      So no part replays anything, and what a part writes is non-recomputable, too. A part only
//      allocates bytes and fetches values.
//   2. Copies of resident values are freed. Each non-recomputable value that the spill tier takes
//      gets a slot there and keeps it: a value that is fetched for a part leaves its slot to the
//      result of the part, which is as large. A value that gets no slot is not spilled meanwhile,
//      because it would take the slot of another.
//   3. The largest part must fit next to what stays in any case.
//
// If 3 is not certain (immovable blocks fragment the pool), the op runs as a whole. Failing disks,
// and test aids that make ops fail, are not covered.
class InParts {
 public:
  struct Sources {
    Values& values;
    Freezer& freezer;
    Replayer& replayer;
    Importer& importer;
    Spiller& spiller;
    const OutOfBudgetReporter& reporter;
    Room& room;
  };
  // All arguments must outlive this object.
  InParts(Context& context, const Sources& sources);

  // True: the parts can be run, one after the other, with nothing else in between; end() must
  // follow. False: the op must run as a whole. Throws OutOfBudget, and what kernels throw. Unless
  // it returns true, end() has been called.
  [[nodiscard]] bool begin(std::span<const Part> parts);
  void end();
  // Whether begin has returned true, and end has not been called.
  [[nodiscard]] bool active() const { return active_; }
  // Step 1 for one storage.
  void detach(StorageId storage);

 private:
  // What one part needs, and what other values hold in the pool and outside.
  struct Need {
    Bytes operands{0};  // operands of the largest part, except those that stay
    Bytes most{0};      // the most that a part needs, with an upper bound of its workspace
    Bytes stays{0};     // bytes that stay in any case
    Bytes perhaps{0};   // bytes that may stay
    bool sure = false;
  };

  [[nodiscard]] bool prepare(std::span<const Part> parts);
  [[nodiscard]] bool is_there(std::span<const Part> parts) const;
  [[nodiscard]] Need look(std::span<const Part> parts);
  void hold_slots(std::span<const Part> parts);
  void let_go();
  [[nodiscard]] bool hold_slot(ValueId id);
  [[nodiscard]] bool is_detached(const PartOperand& operand) const;
  [[nodiscard]] bool may_go(ValueId id) const;
  [[nodiscard]] Bytes operands_of(const Part& part) const;
  [[nodiscard]] Bytes workspace_of(const Part& part) const;

  Context& context_;
  Lineage& lineage_;
  Values& values_;
  Freezer& freezer_;
  Replayer& replayer_;
  Importer& importer_;
  Spiller& spiller_;
  const OutOfBudgetReporter& reporter_;
  Room& room_;
  bool active_ = false;
  std::vector<bool> has_slot_;  // by the value's index
};

}  // namespace recoup::detail
