#include <algorithm>
#include <utility>

#include "csrc/schedule/schedule.h"

namespace recoup::detail {

PeakOfOps::PeakOfOps(const TraceGraph& graph, const Schedule& schedule, std::uint32_t from,
                     std::uint32_t to, std::vector<std::uint32_t> changing)
    : graph_(graph),
      schedule_(schedule),
      from_(from),
      to_(to),
      changing_(std::move(changing)),
      others_(to - from + std::size_t{1}) {
  for (std::uint32_t id = 0; id < graph.values.size(); ++id) {
    if (!std::binary_search(changing_.begin(), changing_.end(), id)) {
      add(id, others_);
    }
  }
}

void PeakOfOps::add(std::uint32_t id, std::vector<std::int64_t>& changes) const {
  const GraphValue& value = graph_.values[id];
  const auto add_bytes = [&](std::uint32_t from, std::uint32_t to) {
    from = std::max(from, from_);
    to = std::min(to, to_);
    if (from < to) {
      changes[from - from_] += value.size.count();
      changes[to - from_] -= value.size.count();
    }
  };
  const std::uint32_t dies = std::max(value.dies, value.born + 1);
  const std::vector<Interval>& kept = schedule_.kept[id];
  if (kept.empty()) {
    add_bytes(value.born, dies);
  }
  for (const Interval& interval : kept) {
    const bool first = &interval == kept.data();
    add_bytes(first ? value.born : interval.from,
              interval.to == Interval::kOpen ? dies : interval.to);
  }
}

std::int64_t PeakOfOps::peak() const {
  std::vector<std::int64_t> changes = others_;
  for (const std::uint32_t id : changing_) {
    add(id, changes);
  }
  std::int64_t live = 0;
  std::int64_t peak = 0;
  for (std::uint32_t op = from_; op < to_; ++op) {
    live += changes[op - from_];
    peak = std::max(peak, live + graph_.ops[op].workspace.count());
  }
  return peak;
}

}  // namespace recoup::detail
