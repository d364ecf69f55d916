// Evictor: frees the bytes of values that a replay or the spill tier can restore. A list or the
// policy chooses the victims.
#pragma once

#include <functional>
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

  // An allocation begins that needs room. The victims named for the one before do not count.
  void begin_room() { named_ = {}; }
  // Evicts what the policy plans for the request, at most what it needs. False: there is no plan.
  bool evict_one(const RoomRequest& request);
  // The first victims that the policy names for the request; empty: there is no candidate.
  [[nodiscard]] Evictions would_evict(const RoomRequest& request);
  // Decides how an evictable value is evicted: it is spilled if it is non-recomputable, or as `by`
  // says (kCheapest: if that costs less than a replay).
  [[nodiscard]] Eviction decide(ValueId id, GetBack by = GetBack::kCheapest) const;
  // Frees the bytes of an evictable value. If it cannot be spilled, a recomputable value is
  // dropped, and a non-recomputable one stays and is not evictable any more. If its storage
  // refuses, the value is disowned.
  void evict(const Eviction& eviction);
  void evict(ValueId id) { evict(decide(id)); }
  // As the running step's plan says.
  void evict_planned(const PlannedVictim& victim);
  void evict_before_block(VictimPlan& plan);
  // Evicts those of the victims that are still evictable, in order.
  void evict_all(const Evictions& evictions);
  // Evicts all candidates, for a second try.
  void evict_candidates();
  // For a request of the user, a schedule or a test, not for room: see Context::asked_to_evict.
  void evict_on_request(ValueId id);
  void evict_everything_on_request();

  // ---- Reclaimer ----
  std::optional<Offer> offer(const RoomRequest& request, Nanoseconds lost,
                             std::optional<Nanoseconds> limit) override;
  void take(const Offer& offer) override;

 private:
  Evictions plan(const RoomRequest& request);
  Evictions ask_policy(const RoomRequest& request);
  [[nodiscard]] Evictions decided(const Victims& plan) const;
  [[nodiscard]] Evictions with_spared(const RoomRequest& request);
  [[nodiscard]] std::optional<Eviction> next_named();
  [[nodiscard]] Evictions needed_bytes(const Evictions& first, const RoomRequest& request);
  [[nodiscard]] Evictions needed_range(const Evictions& first, const RoomRequest& request);
  [[nodiscard]] Evictions named_until(const Evictions& first,
                                      const std::function<Evictions()>& more,
                                      const std::function<bool(const Value&)>& enough);
  [[nodiscard]] ValueId used_last(ValueId victim) const;
  [[nodiscard]] std::optional<Eviction> cheaper_replay(const RoomRequest& request,
                                                       const Eviction& spilled);
  [[nodiscard]] double price_per_byte(const Eviction& eviction) const;
  [[nodiscard]] std::optional<double> price_of_absence(ValueId id) const;
  // If it exceeds `limit`, a part of it that exceeds `limit`, too.
  [[nodiscard]] Nanoseconds replay_price(ValueId id, Nanoseconds limit = Nanoseconds::max()) const;
  [[nodiscard]] Nanoseconds price_of(const Eviction& eviction) const;
  [[nodiscard]] Nanoseconds price_of(const Evictions& evictions) const;

  // What Note [Spared victims] has named for one allocation.
  struct Named {
    bool for_bytes = false;  // for the bytes that it lacks; otherwise for one range
    bool in_vain = false;    // naming found nothing to spare
    Evictions needed{};      // in the order of eviction, with their prices
  };

  Context& context_;
  Lineage& lineage_;
  Values& values_;
  Candidates& candidates_;
  EvictionPolicy& policy_;
  Spiller& spiller_;
  Named named_;
};

}  // namespace recoup::detail
