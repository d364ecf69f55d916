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

std::int64_t PeakOfOps::passing(const GraphOp& replayed, std::uint32_t op) const {
  std::int64_t bytes = replayed.workspace.count();
  for (const std::vector<std::uint32_t>* values : {&replayed.inputs, &replayed.outputs}) {
    for (const std::uint32_t id : *values) {
      const std::vector<Interval>& kept = schedule_.kept[id];
      const bool has_bytes = kept.empty() || interval_at(kept, op) != nullptr;
      bytes += has_bytes ? 0 : graph_.values[id].size.count();
    }
  }
  return bytes;
}

std::vector<std::int64_t> PeakOfOps::passing() const {
  // Op that the replay precedes, producer.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> replays;
  for (const std::uint32_t id : changing_) {
    const std::vector<Interval>& kept = schedule_.kept[id];
    for (std::size_t k = 1; k < kept.size(); ++k) {
      if (kept[k].from >= from_ && kept[k].from < to_) {
        replays.emplace_back(kept[k].from, graph_.values[id].producer);
      }
    }
  }
  // One replay makes all outputs of an op.
  std::sort(replays.begin(), replays.end());
  replays.erase(std::unique(replays.begin(), replays.end()), replays.end());
  std::vector<std::int64_t> most(to_ - from_);
  for (const auto& [op, producer] : replays) {
    std::int64_t& bytes = most[op - from_];
    bytes = std::max(bytes, passing(graph_.ops[producer], op));
  }
  return most;
}

std::int64_t PeakOfOps::peak() const {
  std::vector<std::int64_t> changes = others_;
  for (const std::uint32_t id : changing_) {
    add(id, changes);
  }
  const std::vector<std::int64_t> replays = passing();
  std::int64_t live = 0;
  std::int64_t peak = 0;
  for (std::uint32_t op = from_; op < to_; ++op) {
    live += changes[op - from_];
    const std::int64_t workspace = graph_.ops[op].workspace.count();
    peak = std::max(peak, live + std::max(workspace, replays[op - from_]));
  }
  return peak;
}

}  // namespace recoup::detail
