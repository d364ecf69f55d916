// What a schedule asks of an engine.
#pragma once

#include <span>

#include "csrc/engine/reclaim/evictor.h"
#include "csrc/engine/replay/replayer.h"
#include "csrc/engine/state/context.h"
#include "csrc/engine/state/values.h"

namespace recoup::detail {

class ScheduleRequests {
 public:
  // All must outlive it.
  ScheduleRequests(Context& context, Values& values, Evictor& evictor, Replayer& replayer);

  // Evicts it if that is possible.
  void drop(const ValueTicket& ticket);
  // A kept value is not let go when nobody needs it; the policy may evict it, and that ends it.
  void keep(const ValueTicket& ticket, bool on);
  // Replays what is evicted of them, and keeps it, if there is room for all.
  void restore(std::span<const ValueTicket> tickets);

 private:
  Context& context_;
  Lineage& lineage_;
  Values& values_;
  Evictor& evictor_;
  Replayer& replayer_;
};

}  // namespace recoup::detail
