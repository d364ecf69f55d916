// InParts: ops on lists that run in parts; before the first it is known that all of them fit.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "csrc/engine/base/op.h"
#include "csrc/engine/reclaim/importer.h"
#include "csrc/engine/replay/freezer.h"
#include "csrc/engine/replay/replayer.h"
#include "csrc/engine/state/context.h"
#include "csrc/engine/state/out_of_budget.h"
#include "csrc/engine/state/values.h"
#include "csrc/engine/tier/spiller.h"

namespace recoup::detail {

// Note [Parts]
// An op on lists (the step of an optimizer, for all parameters) that runs in parts may fail half
// way, where it would not have begun as a whole. So before the first part:
//
// 1. What will be written is settled: it is a non-recomputable value on which nothing hangs. Then
// no part replays
//    anything, and what one writes is a non-recomputable value, too: a part takes bytes, and may
//    fetch some.
// 2. Copies of what is resident go. Every non-recomputable value that the spill tier could take
// gets a slot there,
//    which it keeps: what is fetched for a part leaves its slot to what the part has made of it,
//    which is as large. What gets none is not spilled meanwhile, for it would take another's.
// 3. Then the largest part must fit beside what stays in any case.
//
// Where 3 is not sure (blocks that stay in place cut the pool into pieces) the op runs as a whole.
// A disk that fails, and test aids that make ops fail, are beyond this.
class InParts {
 public:
  struct Sources {
    Values& values;
    Freezer& freezer;
    Replayer& replayer;
    Importer& importer;
    Spiller& spiller;
    const OutOfBudgetReporter& reporter;
  };
  // All must outlive it.
  InParts(Context& context, const Sources& sources);

  // True: they can be run, one after the other, with nothing else in between; then end() follows.
  // False: as a whole. Throws OutOfBudget, and what kernels throw. Where it does not say true,
  // end() has been called.
  [[nodiscard]] bool begin(std::span<const Part> parts);
  void end();
  // Step 1 for one storage.
  void detach(StorageId storage);

 private:
  // What one part takes, and all else that has bytes in the pool or outside.
  struct Need {
    Bytes operands{0};  // of any part, beside what stays
    Bytes most{0};      // the same with its workspace, which is an upper bound
    Bytes stays{0};     // whatever else goes
    Bytes perhaps{0};   // may stay, too
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
  std::vector<bool> has_slot_;  // by the value's index
};

}  // namespace recoup::detail
