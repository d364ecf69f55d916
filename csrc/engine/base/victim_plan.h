// VictimPlan: a plan of evictions that takes precedence over the policy.
#pragma once

#include <optional>
#include <span>

#include "recoup/stats.h"
#include "recoup/trace.h"
#include "recoup/types.h"

namespace recoup::detail {

// All methods are called under the engine's lock.
class VictimPlan {
 public:
  virtual ~VictimPlan() = default;

  // The next planned victim: a candidate, the same one until it ceases to be one. Invalid: the
  // policy decides.
  [[nodiscard]] virtual ValueId next() const = 0;
  // Called when enough bytes are free, but fragmented. The price limit up to which blocks are to be
  // moved now, before next() is evicted; nullopt: the plan has no move here.
  [[nodiscard]] virtual std::optional<Nanoseconds> moves_next() const = 0;
  // Blocks were moved for an allocation, by plan or because that was cheapest.
  virtual void on_room_by_moves() = 0;
  // The simulated trace says that this plan is in force from now on.
  virtual void on_recorded(const TracePlan& /*plan*/,
                           std::span<const TraceEviction> /*evictions*/) {}
  // Whether planning in the background slows down what is measured now.
  [[nodiscard]] virtual bool disturbs() const { return false; }
  // Adds the plan's counters.
  virtual void add_to(Stats& /*stats*/) const {}
};

}  // namespace recoup::detail
