#include "csrc/schedule/segments.h"

#include <algorithm>
#include <numeric>

namespace recoup::detail {

ForwardPass::ForwardPass(const TraceGraph& graph, const Round& round)
    : round_(round),
      saved_(op_count() + std::size_t{1}),
      cost_(op_count() + std::size_t{1}),
      crossing_(op_count() + std::size_t{2}) {
  for (std::uint32_t op = round.begin; op <= round.turn; ++op) {
    cost_[op + 1 - round.begin] = graph.ops[op].cost.count();
  }
  std::uint32_t last_making = GraphValue::kNone;
  for (const std::uint32_t id : droppable(graph, round)) {
    const GraphValue& value = graph.values[id];
    const RoundUse use = use_in(round, value);
    const std::uint32_t made = value.producer - round.begin;
    if (use.activation()) {
      saved_[made + 1] += value.size.count();
    }
    crossing_[made + 1] += value.size.count();
    crossing_[use.last_forward + 1 - round.begin] -= value.size.count();
    making_ += value.producer != last_making ? 1 : 0;
    last_making = value.producer;
  }
  for (std::vector<std::int64_t>* sums : {&saved_, &cost_, &crossing_}) {
    std::partial_sum(sums->begin(), sums->end(), sums->begin());
  }
}

std::uint32_t ForwardPass::thinnest(std::uint32_t from, std::uint32_t to) const {
  std::uint32_t best = to;
  for (std::uint32_t bound = to; bound-- > from;) {
    if (crossing(bound) < crossing(best)) {
      best = bound;
    }
  }
  return best;
}

std::vector<std::uint32_t> ForwardPass::cut_evenly(std::uint32_t count) const {
  const std::uint32_t end = round_.turn + 1;
  const std::int64_t total = saved(round_.begin, end);
  // The first bound at which `eighths` of an eighth of a segment are saved.
  const auto at = [&](std::int64_t eighths) {
    const std::int64_t wanted = total * eighths / (8 * std::int64_t{count});
    const auto found = std::lower_bound(saved_.begin(), saved_.end() - 1, wanted);
    return round_.begin + static_cast<std::uint32_t>(found - saved_.begin());
  };
  std::vector<std::uint32_t> bounds{round_.begin};
  for (std::int64_t i = 1; i < count; ++i) {
    const std::uint32_t bound = thinnest(std::max(at(8 * i - 3), bounds.back()), at(8 * i + 3));
    if (bound > bounds.back() && bound < end) {
      bounds.push_back(bound);
    }
  }
  bounds.push_back(end);
  return bounds;
}

std::vector<SegmentState> checkpoint_states(std::size_t segments) {
  std::vector<SegmentState> states(segments);
  for (std::size_t c = 0; c < segments; ++c) {
    states[c].bounds.assign(segments, true);
    states[c].whole.assign(segments, false);
    states[c].whole[c] = true;
  }
  return states;
}

namespace {

class SegmentWriter {
 public:
  SegmentWriter(const TraceGraph& graph, const Round& round, const Segmentation& plan)
      : graph_(graph), round_(round), plan_(plan) {
    for (const SegmentState& state : plan.states) {
      std::vector<std::uint32_t>& sums = bounds_up_to_.emplace_back(1, 0);
      for (const bool kept : state.bounds) {
        sums.push_back(sums.back() + (kept ? 1 : 0));
      }
    }
    find_starts();
  }

  void write(Schedule& schedule) const {
    for (const std::uint32_t id : droppable(graph_, round_)) {
      schedule.kept[id] = intervals(graph_.values[id]);
    }
  }

 private:
  // Where a value is made and used.
  struct Place {
    RoundUse use;
    std::size_t made = 0;  // segment of its producer
    std::size_t last = 0;  // segment of its last forward use
  };
  [[nodiscard]] Place place_of(const GraphValue& value) const {
    const RoundUse use = use_in(round_, value);
    return {.use = use, .made = segment(value.producer), .last = segment(use.last_forward)};
  }
  [[nodiscard]] std::size_t segment(std::uint32_t op) const {
    const auto after = std::upper_bound(plan_.bounds.begin(), plan_.bounds.end(), op);
    return static_cast<std::size_t>(after - plan_.bounds.begin()) - 1;
  }

  // The op at which the backward pass begins to work on each segment: the first one that reads a
  // value that is made and used in that segment only. If a segment makes no such value: the first
  // op that reads a value that is kept from that segment on, but not before. A segment without
  // either gets no ops.
  void find_starts() {
    starts_.assign(plan_.segments(), GraphValue::kNone);
    const std::vector<std::uint32_t> values = droppable(graph_, round_);
    for (const std::uint32_t id : values) {
      const Place place = place_of(graph_.values[id]);
      if (place.use.activation() && place.last == place.made) {
        starts_[place.made] = std::min(starts_[place.made], place.use.first_backward);
      }
    }
    starts_.back() = round_.turn + 1;
    for (std::size_t c = plan_.segments() - 1; c-- > 0;) {
      if (starts_[c] == GraphValue::kNone) {
        find_start_without(c, values);
      }
    }
    std::uint32_t next = round_.end;
    for (std::uint32_t& start : starts_) {
      next = start = std::min(start, next);
    }
    starts_.back() = round_.turn + 1;
  }

  void find_start_without(std::size_t c, const std::vector<std::uint32_t>& values) {
    const std::uint32_t later = start_after(c);
    for (const std::uint32_t id : values) {
      const GraphValue& value = graph_.values[id];
      const Place place = place_of(value);
      if (place.use.activation() && place.made <= c && kept(place, c) && !kept(place, c + 1)) {
        const auto reader = std::upper_bound(value.readers.begin(), value.readers.end(), later);
        starts_[c] = reader == value.readers.end() ? starts_[c] : std::min(starts_[c], *reader);
      }
    }
  }

  // The start of the nearest segment after c that has one.
  [[nodiscard]] std::uint32_t start_after(std::size_t c) const {
    const auto found =
        std::find_if(starts_.begin() + static_cast<std::ptrdiff_t>(c) + 1, starts_.end(),
                     [](std::uint32_t start) { return start != GraphValue::kNone; });
    return *found;
  }

  // Whether a value is kept while the backward pass works on segment c, which comes after the
  // segment that made it.
  [[nodiscard]] bool kept_before(const Place& place, std::size_t c) const {
    const std::size_t last = std::min(place.last, c);
    const std::vector<std::uint32_t>& sums = bounds_up_to_[c];
    return sums[last + 1] > sums[place.made + 1] ||  // crosses one of the bounds made + 1 ... last
           (place.use.activation() && plan_.states[c].whole[place.made]);
  }

  [[nodiscard]] bool kept(const Place& place, std::size_t c) const {
    return c == place.made ? place.use.activation() && plan_.states[c].whole[c]
                           : kept_before(place, c);
  }

  [[nodiscard]] std::vector<Interval> intervals(const GraphValue& value) const {
    const Place place = place_of(value);
    std::vector<Interval> found{{value.producer + 1, place.use.last_forward + 1}};
    for (std::size_t c = plan_.segments(); c-- > place.made;) {
      const bool own = c == place.made;
      if (!kept(place, c)) {
        continue;
      }
      const bool forward = c + 1 == plan_.segments();
      const std::uint32_t from = forward ? found.back().to : starts_[c];
      const std::uint32_t to = own ? Interval::kOpen : starts_[c - 1];
      add_interval(found, {from, to});
    }
    return found;
  }

  const TraceGraph& graph_;
  const Round& round_;
  const Segmentation& plan_;
  std::vector<std::uint32_t> starts_;  // by segment
  // By state: number of kept bounds before each bound.
  std::vector<std::vector<std::uint32_t>> bounds_up_to_;
};

}  // namespace

void add_segments(const TraceGraph& graph, const Round& round, const Segmentation& plan,
                  Schedule& schedule) {
  SegmentWriter(graph, round, plan).write(schedule);
}

}  // namespace recoup::detail
