#include "csrc/cuda/stream_order.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "csrc/base/check.h"
#include "csrc/cuda/error.h"

namespace recoup::detail::cuda {

StreamOrder::~StreamOrder() {
  for (const auto& [device, event] : events_) {
    runtime_.destroy_event(event);
  }
}

StreamOrder::Interval StreamOrder::interval(Range range) {
  RECOUP_CHECK(range.offset >= Bytes(0) && range.size > Bytes(0));
  return {range.offset.count(), (range.offset + range.size).count()};
}

bool StreamOrder::is_only(Stream stream) const {
  return streams_.empty() || (streams_.size() == 1 && streams_.front() == stream);
}

// Accesses on the first stream before there was a second one are in no range. So the first stream
// counts as a user of everything, and a new stream waits for it once when it first uses bytes. A
// stream that takes bytes waits for their users anyway, and for takers that have waited for them.
void StreamOrder::add_stream(Stream stream) {
  if (std::find(streams_.begin(), streams_.end(), stream) != streams_.end()) {
    return;
  }
  if (streams_.size() == 1) {
    ranges_.set(Map::segment_type{Interval(0, std::numeric_limits<std::int64_t>::max()),
                                  State{.taker = std::nullopt, .users = {streams_.front()}}});
  }
  streams_.push_back(stream);
}

void StreamOrder::wait_for(Stream other, Stream stream) {
  // An event recorded during a capture is a part of the graph, and so is every stream that waits
  // for it.
  if (runtime_.capturing(other) || runtime_.capturing(stream)) {
    throw CudaError(
        "memory is passed between two streams while one of them is being captured into a CUDA "
        "graph, and recoup cannot order them: capture outside the budget, with separate memory");
  }
  auto found = events_.find(other.device);
  if (found == events_.end()) {
    found = events_.emplace(other.device, runtime_.create_event(other.device, false)).first;
  }
  runtime_.record(found->second, other);
  runtime_.wait(stream, found->second);
  ++waits_;
}

void StreamOrder::use(Range range, Stream stream) {
  if (is_only(stream)) {
    add_stream(stream);
    return;
  }
  if (std::find(streams_.begin(), streams_.end(), stream) == streams_.end()) {
    wait_for(streams_.front(), stream);
    add_stream(stream);
  }
  std::vector<Stream> takers;
  std::vector<Map::segment_type> changed;
  const Interval whole = interval(range);
  const auto touched = ranges_.equal_range(whole);
  for (auto at = touched.first; at != touched.second; ++at) {
    const auto& [part, state] = *at;
    const auto place = std::lower_bound(state.users.begin(), state.users.end(), stream);
    if (state.taker == stream || (place != state.users.end() && *place == stream)) {
      continue;
    }
    if (state.taker && std::find(takers.begin(), takers.end(), *state.taker) == takers.end()) {
      takers.push_back(*state.taker);
    }
    changed.emplace_back(part & whole, state);
    auto& users = changed.back().second.users;
    users.insert(users.begin() + (place - state.users.begin()), stream);
  }
  for (const Stream taker : takers) {
    wait_for(taker, stream);
  }
  for (const auto& segment : changed) {
    ranges_.set(segment);
  }
}

void StreamOrder::take(Range range, Stream stream) {
  if (is_only(stream)) {
    add_stream(stream);
    return;
  }
  std::vector<Stream> others;
  const auto add = [&](Stream other) {
    if (other != stream && std::find(others.begin(), others.end(), other) == others.end()) {
      others.push_back(other);
    }
  };
  if (ranges_.empty()) {
    others = streams_;
  }
  const auto touched = ranges_.equal_range(interval(range));
  for (auto at = touched.first; at != touched.second; ++at) {
    const State& state = at->second;
    if (state.taker) {
      add(*state.taker);
    }
    std::for_each(state.users.begin(), state.users.end(), add);
  }
  for (const Stream other : others) {
    wait_for(other, stream);
  }
  add_stream(stream);
  ranges_.set(Map::segment_type{interval(range), State{.taker = stream, .users = {}}});
}

void StreamOrder::check() const {
  RECOUP_CHECK(ranges_.empty() == (streams_.size() < 2));
  std::int64_t end = 0;
  for (const auto& [part, state] : ranges_) {
    RECOUP_CHECK(part.lower() == end, "a hole before ", part.lower());
    end = part.upper();
    RECOUP_CHECK(state.taker || !state.users.empty());
    RECOUP_CHECK(std::is_sorted(state.users.begin(), state.users.end()));
    for (const Stream user : state.users) {
      RECOUP_CHECK(user != state.taker);
      RECOUP_CHECK(std::find(streams_.begin(), streams_.end(), user) != streams_.end());
    }
  }
  RECOUP_CHECK(ranges_.empty() || end == std::numeric_limits<std::int64_t>::max());
}

}  // namespace recoup::detail::cuda
