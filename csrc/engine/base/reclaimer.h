// Reclaimer: a way to get a contiguous range of free bytes. Room compares the prices of all
// reclaimers.
#pragma once

#include <optional>
#include <variant>
#include <vector>

#include "csrc/pool/compaction.h"
#include "recoup/policy.h"
#include "recoup/types.h"

namespace recoup::detail {

// A victim, and how its bytes are freed: decided when the victim is named.
struct Eviction {
  ValueId victim;
  GetBack by = GetBack::kCheapest;  // the policy's choice of how the victim is to be restored
  bool spills = false;              // the victim is copied to the spill tier; false: it is dropped
  std::optional<Nanoseconds> price = {};  // cost of restoring the victim; nullopt: not computed
};

using Evictions = std::vector<Eviction>;

// One step towards a request. The reclaimer that made an offer keeps nothing of it.
struct Offer {
  Nanoseconds price;  // the cheapest offer is taken
  // Price of what has been evicted for the request so far, once this step is done.
  Nanoseconds lost;
  // What the reclaimer is going to do. monostate: a wait.
  std::variant<std::monostate, Evictions, Compaction> plan;
};

class Reclaimer {
 public:
  virtual ~Reclaimer() = default;

  // One step towards `request`, whose bytes are free in sum. `lost` is the price of what has been
  // evicted for the same request so far. nullopt: nothing can be done, or only at a price above
  // `limit`. Changes nothing.
  virtual std::optional<Offer> offer(const RoomRequest& request, Nanoseconds lost,
                                     std::optional<Nanoseconds> limit) = 0;
  // Carries out an offer of this reclaimer. Nothing may have changed since it was made.
  virtual void take(const Offer& offer) = 0;
};

}  // namespace recoup::detail
