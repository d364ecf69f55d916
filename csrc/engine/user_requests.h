// What a user asks of an engine, beside running ops.
#pragma once

#include <vector>

#include "csrc/engine/candidates.h"
#include "csrc/engine/context.h"
#include "csrc/engine/evictor.h"
#include "csrc/engine/freezer.h"
#include "csrc/engine/leaves.h"
#include "csrc/engine/out_of_budget.h"
#include "csrc/engine/replayer.h"
#include "csrc/engine/values.h"
#include "recoup/stats.h"

namespace recoup::detail {

class UserRequests {
 public:
  struct Parts {
    Values& values;
    Leaves& leaves;
    Candidates& candidates;
    Evictor& evictor;
    Replayer& replayer;
    Freezer& freezer;
    const OutOfBudgetReporter& reporter;
  };
  // All must outlive it.
  UserRequests(Context& context, const Parts& parts);

  // Whether it has no bytes afterwards.
  bool evict(StorageId storage);
  void evict_everything() { evictor_.evict_everything_as_told(); }
  // Its bytes are seen from outside: it is resident and stays where it is until it dies.
  void escape(StorageId storage);
  // Whether escaping or overwriting it would replay.
  [[nodiscard]] bool has_needed_dependents(StorageId storage) const;
  // Makes it resident and keeps it so, through writes; counted.
  [[nodiscard]] PinTicket pin(StorageId storage);
  // Does nothing when the storage is gone: its pins went with it.
  void unpin(const PinTicket& ticket) noexcept;
  // Makes every live storage resident and a leaf. Throws OutOfBudget; then nothing is lost.
  void materialize_all();
  // Whether they are.
  [[nodiscard]] bool materialized() const;
  // What cannot be evicted and why, largest first.
  [[nodiscard]] std::vector<PinnedRow> pinned() const;

 private:
  // Those that could be had, pinned.
  std::vector<ValueId> acquire_each(std::span<const ValueId> values);
  // They become leaves; their pins go.
  void keep_for_good(std::span<const ValueId> acquired);
  void without_copy(ValueId resident);
  [[nodiscard]] PinnedRow pinned_row(ValueId id, const Value& value) const;

  Context& context_;
  Lineage& lineage_;
  Values& values_;
  Leaves& leaves_;
  Candidates& candidates_;
  Evictor& evictor_;
  Replayer& replayer_;
  Freezer& freezer_;
  const OutOfBudgetReporter& reporter_;
};

}  // namespace recoup::detail
