// Reclaimer: a way to get free bytes in one piece. Room compares what each of them asks.
#pragma once

#include <optional>

#include "recoup/policy.h"
#include "recoup/types.h"

namespace recoup::detail {

class Reclaimer {
 public:
  virtual ~Reclaimer() = default;

  // What it would cost to do something for `request`, of which no bytes are missing as a sum, now
  // that `lost` has been given up for it already; nullopt: it can do nothing, or only what is
  // dearer than `limit`. Nothing has changed yet.
  virtual std::optional<Nanoseconds> offer(const RoomRequest& request, Nanoseconds lost,
                                           std::optional<Nanoseconds> limit) = 0;
  // Does what it offered last, and adds to `lost` what that gives up.
  virtual void take(Nanoseconds& lost) = 0;
};

}  // namespace recoup::detail
