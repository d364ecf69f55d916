#include "csrc/schedule/rounds.h"

#include <algorithm>

namespace recoup::detail {
namespace {

// A valley separates two rounds if it is at most half as high as the peaks on both sides.
constexpr std::int64_t kValley = 2;
// A peak that is lower than the highest one by this factor is no round: a schedule would gain
// nothing.
constexpr std::int64_t kSmall = 10;

std::vector<std::int64_t> live_bytes(const TraceGraph& graph) {
  std::vector<std::int64_t> live(graph.ops.size() + 1);
  for (const GraphValue& value : graph.values) {
    if (value.recomputable && !value.kept) {
      live[value.producer] += value.size.count();
      live[std::max(value.dies, value.producer)] -= value.size.count();
    }
  }
  for (std::size_t i = 1; i < live.size(); ++i) {
    live[i] += live[i - 1];
  }
  live.pop_back();
  return live;
}

class RoundFinder {
 public:
  explicit RoundFinder(const std::vector<std::int64_t>& live) : live_(live) {}

  std::vector<Round> find() {
    work_.push_back({0, static_cast<std::uint32_t>(live_.size())});
    while (!work_.empty()) {
      const Range range = work_.back();
      work_.pop_back();
      look_at(range);
    }
    std::sort(rounds_.begin(), rounds_.end(),
              [](const Round& a, const Round& b) { return a.begin < b.begin; });
    return rounds_;
  }

 private:
  struct Range {
    std::uint32_t begin;
    std::uint32_t end;
  };

  void look_at(Range range) {
    if (range.begin == range.end) {
      return;
    }
    const auto first = live_.begin() + range.begin;
    const auto peak = std::max_element(first, live_.begin() + range.end);
    highest_ = std::max(highest_, *peak);
    if (*peak <= 0 || *peak * kSmall < highest_) {
      return;
    }
    const auto turn = static_cast<std::uint32_t>(peak - live_.begin());
    const std::uint32_t begin = valley(turn, range.begin, -1);
    // The op of the valley itself is the first op of the next rise.
    const std::uint32_t after = valley(turn, range.end - 1, +1);
    const std::uint32_t end = after + 1 == range.end ? range.end : after;
    rounds_.push_back({.begin = begin, .turn = turn, .end = end});
    work_.push_back({range.begin, begin});
    work_.push_back({end, range.end});
  }

  // The lowest place from the peak to `limit`, or to where another peak rises from a valley.
  [[nodiscard]] std::uint32_t valley(std::uint32_t peak, std::uint32_t limit, int step) const {
    std::uint32_t lowest = peak;
    for (std::uint32_t i = peak; i != limit;) {
      i = static_cast<std::uint32_t>(static_cast<std::int64_t>(i) + step);
      if (live_[i] * kSmall >= live_[peak] && live_[i] >= kValley * live_[lowest] &&
          live_[peak] >= kValley * live_[lowest]) {
        return lowest;
      }
      if (live_[i] <= live_[lowest]) {
        lowest = i;
      }
    }
    return limit;
  }

  const std::vector<std::int64_t>& live_;
  std::int64_t highest_ = 0;
  std::vector<Range> work_;
  std::vector<Round> rounds_;
};

}  // namespace

std::vector<Round> find_rounds(const TraceGraph& graph) {
  return RoundFinder(live_bytes(graph)).find();
}

RoundUse use_in(const Round& round, const GraphValue& value) {
  const auto after = std::upper_bound(value.readers.begin(), value.readers.end(), round.turn);
  return {.last_forward = after == value.readers.begin() ? value.producer : *(after - 1),
          .first_backward = after == value.readers.end() ? GraphValue::kNone : *after};
}

std::vector<std::uint32_t> droppable(const TraceGraph& graph, const Round& round) {
  std::vector<std::uint32_t> found;
  for (std::uint32_t op = round.begin; op <= round.turn; ++op) {
    for (const std::uint32_t id : graph.ops[op].outputs) {
      const GraphValue& value = graph.values[id];
      if (value.recomputable && !value.kept && value.size > Bytes(0) &&
          (use_in(round, value).activation() || value.dies <= round.turn + 1)) {
        found.push_back(id);
      }
    }
  }
  return found;
}

}  // namespace recoup::detail
