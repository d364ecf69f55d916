// Evictor: takes bytes that a replay can make again, in the order of a list or of the policy.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "csrc/engine/base/reclaimer.h"
#include "csrc/engine/state/candidates.h"
#include "csrc/engine/state/context.h"
#include "csrc/engine/state/values.h"
#include "csrc/engine/tier/spiller.h"
#include "recoup/policy.h"

namespace recoup::detail {

class Evictor final : public Reclaimer {
 public:
  // All must outlive it.
  Evictor(Context& context, Values& values, Candidates& candidates, EvictionPolicy& policy,
          Spiller& spiller);

  // Evicts what the policy plans for the request; false: it has no plan.
  bool evict_one(const RoomRequest& request);
  // What the policy would name first for the request.
  [[nodiscard]] EvictionPlan would_evict(const RoomRequest& request);
  // Whether an evictable value would be spilled if it is to be got back like that.
  [[nodiscard]] bool would_spill(ValueId id, GetBack by) const;
  // It must be evictable. What costs less to spill than to replay is spilled, and a
  // non-recomputable value is. A storage that refuses becomes a non-recomputable value instead;
  // what cannot be spilled is evicted, or stays as a non-recomputable value that is not evictable
  // any more.
  void evict(ValueId id, GetBack by = GetBack::kCheapest);
  // What of the plan's victims is still evictable, one after the other.
  void evict_all(const EvictionPlan& plan);
  // Everything that may be evicted, for a second try.
  void evict_candidates();
  // For the user, a schedule or a test, and not for room: see Context::told_to_evict.
  void evict_as_told(ValueId id);
  void evict_everything_as_told();

  // ---- Reclaimer ----
  std::optional<Nanoseconds> offer(const RoomRequest& request, Nanoseconds lost,
                                   std::optional<Nanoseconds> limit) override;
  void take(Nanoseconds& lost) override;

 private:
  EvictionPlan plan(const RoomRequest& request);
  EvictionPlan ask_policy(const RoomRequest& request);
  [[nodiscard]] ValueId used_last(ValueId victim) const;
  [[nodiscard]] ValueId cheaper_replay(const RoomRequest& request, ValueId spilled);
  [[nodiscard]] double price_per_byte(ValueId id) const;
  [[nodiscard]] std::optional<double> price_of_absence(ValueId id) const;
  [[nodiscard]] bool can_spill(Bytes missing) const;
  [[nodiscard]] Nanoseconds replay_price(ValueId id) const;
  [[nodiscard]] Nanoseconds price_of(ValueId id, GetBack by) const;
  [[nodiscard]] Nanoseconds price_of(const EvictionPlan& plan) const;

  Context& context_;
  Lineage& lineage_;
  Values& values_;
  Candidates& candidates_;
  EvictionPolicy& policy_;
  Spiller& spiller_;
  EvictionPlan offered_;
  Nanoseconds offered_price_{0};
};

}  // namespace recoup::detail
