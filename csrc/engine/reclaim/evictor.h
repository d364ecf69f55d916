// Evictor: frees the bytes of values that a replay or the spill tier can restore. A list or the
// policy chooses the victims.
#pragma once

#include <functional>
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
  // All arguments must outlive this object.
  Evictor(Context& context, Values& values, Candidates& candidates, EvictionPolicy& policy,
          Spiller& spiller);

  // Evicts what the policy plans for the request, at most what it needs. False: there is no plan.
  bool evict_one(const RoomRequest& request);
  // The first plan of the policy for the request.
  [[nodiscard]] EvictionPlan would_evict(const RoomRequest& request);
  // Whether the evictable value would be spilled, if it is to be restored as `by` says.
  [[nodiscard]] bool would_spill(ValueId id, GetBack by) const;
  // Frees the bytes of an evictable value. Spills it if it is non-recomputable, or as `by` says
  // (kCheapest: if that costs less than a replay). If it cannot be spilled, a recomputable value is
  // evicted, and a non-recomputable one stays and is not evictable any more. If its storage
  // refuses, the value is disowned.
  void evict(ValueId id, GetBack by = GetBack::kCheapest);
  // Evicts those of the plan's victims that are still evictable, in order.
  void evict_all(const EvictionPlan& plan);
  // Evicts all candidates, for a second try.
  void evict_candidates();
  // For a request of the user, a schedule or a test, not for room: see Context::told_to_evict.
  void evict_as_told(ValueId id);
  void evict_everything_as_told();

  // ---- Reclaimer ----
  std::optional<Offer> offer(const RoomRequest& request, Nanoseconds lost,
                             std::optional<Nanoseconds> limit) override;
  void take(const Offer& offer) override;

 private:
  EvictionPlan plan(const RoomRequest& request);
  EvictionPlan ask_policy(const RoomRequest& request);
  [[nodiscard]] EvictionPlan with_spared(const EvictionPlan& first, const RoomRequest& request);
  [[nodiscard]] std::vector<ValueId> needed_bytes(const EvictionPlan& first,
                                                  const RoomRequest& request);
  [[nodiscard]] std::vector<ValueId> needed_range(const EvictionPlan& first,
                                                  const RoomRequest& request);
  [[nodiscard]] std::vector<ValueId> named_until(const EvictionPlan& first,
                                                 const std::function<EvictionPlan()>& more,
                                                 const std::function<bool(const Value&)>& enough);
  [[nodiscard]] ValueId used_last(ValueId victim) const;
  [[nodiscard]] ValueId cheaper_replay(const RoomRequest& request, ValueId spilled);
  [[nodiscard]] double price_per_byte(ValueId id) const;
  [[nodiscard]] std::optional<double> price_of_absence(ValueId id) const;
  [[nodiscard]] Nanoseconds replay_price(ValueId id) const;
  [[nodiscard]] Nanoseconds price_of(ValueId id, GetBack by) const;
  [[nodiscard]] Nanoseconds price_of(const EvictionPlan& plan) const;

  Context& context_;
  Lineage& lineage_;
  Values& values_;
  Candidates& candidates_;
  EvictionPolicy& policy_;
  Spiller& spiller_;
};

}  // namespace recoup::detail
