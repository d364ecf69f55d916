#include "csrc/engine/replay/replayer.h"

#include <algorithm>
#include <chrono>
#include <iterator>

#include "csrc/base/at_end.h"
#include "recoup/errors.h"

namespace recoup::detail {

void Replayer::acquire(std::span<const ValueId> values, const Effort& effort) {
  Lineage& lineage = parts_.context.lineage;
  const bool resident =
      std::all_of(values.begin(), values.end(), [&](ValueId id) { return lineage[id].resident(); });
  if (!resident) {
    bring_back(values, effort);
  }
  for (ValueId id : values) {
    ++lineage[id].fixed;
    if (resident) {
      parts_.values.hard_pin(id);
    }
  }
}

std::vector<Values::Hold> Replayer::hold(std::span<const ValueId> values, const Effort& effort) {
  std::vector<Values::Hold> held;
  held.reserve(values.size());
  acquire(values, effort);
  for (ValueId id : values) {
    held.emplace_back(parts_.values, id);
  }
  return held;
}

// Restores the values, and pins each once.
void Replayer::bring_back(std::span<const ValueId> values, const Effort& effort) {
  Context& context = parts_.context;
  const auto start = std::chrono::steady_clock::now();
  const auto others = [&context] {
    return context.room_time + Nanoseconds(context.stats.fetch_ns);
  };
  const Nanoseconds others_before = others();
  std::vector<ValueId> dead_sources;
  const AtEnd add_time([&] {
    const Nanoseconds elapsed = std::chrono::steady_clock::now() - start;
    context.stats.replay_ns += (elapsed - (others() - others_before)).count();
  });
  replay(values, effort, dead_sources);
  for (ValueId id : dead_sources) {
    if (context.lineage.contains(id)) {
      non_recomputables_.consider(id);
    }
  }
}

// Note [Other tries] in replay.h.
void Replayer::replay(std::span<const ValueId> values, const Effort& effort,
                      std::vector<ValueId>& dead_sources) {
  using Order = Replay::Order;
  Context& context = parts_.context;
  const Order first =
      context.options.replay_order == ReplayOrder::kMemory ? Order::kHeaviestFirst : Order::kPinned;
  const Order orders[] = {first, first, Order::kAsGiven};
  const std::size_t last = effort.tries == Tries::kOne ? 0 : std::size(orders) - 1;
  for (std::size_t attempt = 0;; ++attempt) {
    try {
      const WithoutWaiting more_follows(context, attempt < last || effort.tries == Tries::kOne);
      Replay(parts_, dead_sources, orders[attempt], effort.most).run(values);
      return;
    } catch (const OutOfBudget& error) {
      if (error.report().asked == Bytes(0) || attempt == last) {
        throw;  // too expensive, or this was the last try
      }
    }
    ++context.stats.restarts;
    parts_.evictor.evict_candidates();
  }
}

}  // namespace recoup::detail
