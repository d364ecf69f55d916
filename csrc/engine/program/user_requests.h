// What a user asks of an engine, beside running ops.
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
// A storage that has escaped keeps its address, and blocks that may not move cut the pool into
// pieces: a hundred small arrays of NumPy may lie such that no free range is as large as one
// activation. So a storage leaves the pool when it escapes: its bytes are copied to memory of its
// own before any code has its address. It is charged as before. A storage stays in the pool if its
// address was taken without a request (a custom op kept a pointer), if it is pinned or in use, and
// on a GPU. A storage that escaped in place stays there for good: its address is known.
//
// Note [Exits through a file]
// At the exit of a scope all that lives gets its bytes back, at once. Each replay needs room for
// what it reads and makes, which may be more than what the budget has beside all that lives. With a
// spill tier there is room, because leaves are spilled for a while. Without one the exit would
// fail for a program whose budget is too small, or that lives at its limit. So the device lends a
// tier, a file, for the rest of the scope, which is its exit.

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
  // All must outlive it.
  UserRequests(Context& context, const Parts& parts);

  // Whether it has no bytes afterwards.
  bool evict(StorageId storage);
  void evict_everything() { evictor_.evict_everything_as_told(); }
  // Its bytes are seen from outside: it is resident and stays where it is until it dies.
  void escape(StorageId storage);
  // The same before any code has its address, unless it escaped earlier: it leaves the pool if it
  // can. Note [Leaving the pool].
  void escape_and_leave(StorageId storage);
  // The second half of that, of a storage that has just escaped; for who repeats a trace.
  void leave_pool(StorageId storage);
  // Whether escaping or overwriting it would replay.
  [[nodiscard]] bool has_needed_dependents(StorageId storage) const;
  // Makes it resident and keeps it so, through writes; counted.
  [[nodiscard]] PinTicket pin(StorageId storage);
  // Does nothing when the storage is gone: its pins went with it.
  void unpin(const PinTicket& ticket) noexcept;
  // Makes every live storage resident and a non-recomputable value. Throws OutOfBudget; then
  // nothing is lost.
  void materialize_all();
  // Whether they are.
  [[nodiscard]] bool materialized() const;
  // What cannot be evicted and why, largest first.
  [[nodiscard]] std::vector<PinnedRow> pinned() const;

 private:
  // Those that could be had, pinned.
  std::vector<ValueId> acquire_each(std::span<const ValueId> values);
  // The values of live storages that have to be acquired to be leaves with bytes.
  [[nodiscard]] std::vector<ValueId> to_get_back() const;
  // Note [Exits through a file]. They may be more afterwards.
  void acquire_all(std::vector<ValueId>& held);
  [[nodiscard]] bool borrow_tier();
  // They become leaves; their pins go.
  void keep_for_good(std::span<const ValueId> acquired);
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
