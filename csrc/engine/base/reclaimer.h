// Reclaimer: a way to get a contiguous range of free bytes. Room compares the prices of all
// reclaimers.
#pragma once

#include <optional>

#include "recoup/policy.h"
#include "recoup/types.h"

namespace recoup::detail {

class Reclaimer {
 public:
  virtual ~Reclaimer() = default;

  // The price of one step towards `request`, whose bytes are free in sum. `lost` is the price of
  // what has been evicted for the same request so far. nullopt: nothing can be done, or only at a
  // price above `limit`. Changes nothing.
  virtual std::optional<Nanoseconds> offer(const RoomRequest& request, Nanoseconds lost,
                                           std::optional<Nanoseconds> limit) = 0;
  // Carries out the last offer, and adds the price of what it evicts to `lost`.
  virtual void take(Nanoseconds& lost) = 0;
};

}  // namespace recoup::detail
