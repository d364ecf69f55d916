// ScheduleRequests: what a schedule asks of an engine.
#pragma once

#include <span>

#include "csrc/engine/reclaim/evictor.h"
#include "csrc/engine/replay/replayer.h"
#include "csrc/engine/state/context.h"
#include "csrc/engine/state/values.h"

namespace recoup::detail {

class ScheduleRequests {
 public:
  // All arguments must outlive this object.
  ScheduleRequests(Context& context, Values& values, Evictor& evictor, Replayer& replayer);

  // Evicts the value, if possible.
  void drop(const ValueTicket& ticket);
  // A kept value is not dropped when it is not needed. The policy may still evict it, which ends
  // the keeping.
  void keep(const ValueTicket& ticket, bool on);
  // Replays the evicted ones and keeps them, if there is room for all.
  void restore(std::span<const ValueTicket> tickets);

 private:
  Context& context_;
  Lineage& lineage_;
  Values& values_;
  Evictor& evictor_;
  Replayer& replayer_;
};

}  // namespace recoup::detail
