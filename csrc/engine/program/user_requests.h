// UserRequests: what a user asks of an engine, apart from running ops.
#pragma once

#include <vector>

#include "csrc/engine/reclaim/evictor.h"
#include "csrc/engine/replay/freezer.h"
#include "csrc/engine/replay/replayer.h"
#include "csrc/engine/state/candidates.h"
#include "csrc/engine/state/context.h"
#include "csrc/engine/state/non_recomputables.h"
#include "csrc/engine/state/out_of_budget.h"
#include "csrc/engine/state/pages.h"
#include "csrc/engine/state/values.h"
#include "recoup/stats.h"

namespace recoup::detail {

// Note [Leaving the pool]
// A storage that has escaped keeps its address, and immovable blocks fragment the pool: with a
// hundred small NumPy arrays in it, no free range may be as large as one activation. So a storage
// leaves the pool when it escapes: its bytes are copied to memory of its own before any code has
// its address. It is charged as before. A storage stays in the pool if its address was taken
// without a request (a custom op kept a pointer), if it is pinned or in use, and on a GPU. A
// storage that escaped in place stays there for good: its address is known.
//
// Note [Exits through a file]
// At the exit of a scope all live tensors get their bytes back, at once. Each replay needs room for
// its inputs and results, which may be more than the budget has next to all live tensors. With a
// spill tier there is room, because non-recomputable values are spilled for a while. Without one
// the exit would fail for a program whose budget is too small, or only just large enough. So the
// device lends a tier, a file, for the rest of the scope, which is its exit.

// Note [Rules]
// A user may forbid that a storage is evicted, or that it is spilled. The rule holds for all
// contents of the storage until it dies. Unlike a pin, no code knows the address: the block may
// move. At the exit of a scope, a lent tier holds no storage that must not be spilled.

class UserRequests {
 public:
  struct Parts {
    Values& values;
    NonRecomputables& non_recomputables;
    Candidates& candidates;
    Evictor& evictor;
    Replayer& replayer;
    Freezer& freezer;
    Pages& pages;
    const OutOfBudgetReporter& reporter;
  };
  // All arguments must outlive this object.
  UserRequests(Context& context, const Parts& parts);

  // Evicts the storage, if possible. Returns whether it has no bytes afterwards.
  bool evict(StorageId storage);
  void evict_everything() { evictor_.evict_everything_on_request(); }
  // Code outside the engine gets the address: the storage is made resident and keeps its place
  // until it dies.
  // Returns whether it had not escaped before.
  bool escape(StorageId storage);
  // Note [Shown]. The storage escapes until end_show() has been called as often. `leaves`: as in
  // escape_and_leave.
  [[nodiscard]] PinTicket show(StorageId storage, bool leaves);
  // Does nothing if the storage is gone.
  void end_show(const PinTicket& ticket) noexcept;
  // The end of an escape, for simulations of a trace.
  void end_escape(StorageId storage) noexcept;
  // Does what escape() does, before any code has the address. Unless the storage escaped earlier,
  // it leaves the pool if it can: Note [Leaving the pool].
  bool escape_and_leave(StorageId storage);
  // The second half of escape_and_leave, for a storage that has just escaped. For simulations of a
  // trace.
  void leave_pool(StorageId storage);
  // Sets the line of the program that took the storage's address, for reports.
  void set_address_line(StorageId storage, LineId line) { values_[storage].address_line = line; }
  // Whether code may have the address of the storage: it is pinned by request, or has escaped.
  [[nodiscard]] bool is_held(StorageId storage) const;
  // Whether an escape or an overwrite of the storage would replay ops.
  [[nodiscard]] bool has_needed_dependents(StorageId storage) const;
  // Makes the storage resident and keeps it so, in place, through writes. Pins are counted.
  [[nodiscard]] PinTicket pin(StorageId storage);
  // Does nothing if the storage is gone: its pins ended with it.
  void unpin(const PinTicket& ticket) noexcept;
  // Note [Rules]. Of a storage that `rule` applies to already, nothing changes.
  void set_rule(StorageId storage, StorageRule rule);
  // Makes every live storage resident and its value non-recomputable. Throws OutOfBudget; nothing
  // is lost then.
  void materialize_all();
  // Whether every live storage is resident and its value non-recomputable.
  [[nodiscard]] bool materialized() const;
  // What cannot be evicted and why, largest first.
  [[nodiscard]] std::vector<PinnedRow> pinned() const;

 private:
  void give_address(StorageId storage);
  // Holds those values that can be held.
  [[nodiscard]] std::vector<Values::Hold> hold_each(std::span<const ValueId> values);
  // The values of live storages that must be acquired to become resident and non-recomputable.
  [[nodiscard]] std::vector<ValueId> to_get_back() const;
  // Acquires the values. May enable a lent spill tier and then replace `wanted` by a longer list:
  // Note [Exits through a file].
  [[nodiscard]] std::vector<Values::Hold> hold_all(std::vector<ValueId>& wanted);
  [[nodiscard]] bool borrow_tier();
  // Makes the values non-recomputable.
  void keep_for_good(const std::vector<Values::Hold>& held);
  void without_copy(ValueId resident);
  [[nodiscard]] PinnedRow pinned_row(ValueId id, const Value& value) const;

  Context& context_;
  Lineage& lineage_;
  Values& values_;
  NonRecomputables& non_recomputables_;
  Candidates& candidates_;
  Evictor& evictor_;
  Replayer& replayer_;
  Freezer& freezer_;
  Pages& pages_;
  const OutOfBudgetReporter& reporter_;
};

}  // namespace recoup::detail
