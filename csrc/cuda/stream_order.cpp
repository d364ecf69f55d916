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

Event StreamOrder::record_end(Stream stream) {
  auto found = events_.find(stream.device);
  if (found == events_.end()) {
    found = events_.emplace(stream.device, runtime_.create_event(stream.device, false)).first;
  }
  runtime_.record(found->second, stream);
  return found->second;
}

// Omits the waits that are not needed: Note [Waits for copies].
void StreamOrder::wait_for(const Work& work, Stream stream) {
  if (copies_.is_ordered(work.stream, work.number, stream)) {
    return;
  }
  // An event recorded during a capture is a part of the graph, and so is every stream that waits
  // for it.
  if (runtime_.capturing(work.stream) != runtime_.capturing(stream)) {
    throw CudaError(
        "memory is passed between two streams while one of them is being captured into a CUDA "
        "graph, and recoup cannot order them: capture outside the budget, with separate memory");
  }
  const std::optional<CopyStreams::End> end = copies_.end_of(work.stream, work.number);
  runtime_.wait(stream, end ? end->event : record_end(work.stream));
  copies_.set_waited(work.stream, end ? end->number : CopyStreams::kAll, stream);
  ++waits_;
}

void StreamOrder::add_work(std::vector<Work>& all, const Work& work) {
  const auto same = std::find_if(all.begin(), all.end(),
                                 [&work](const Work& each) { return each.stream == work.stream; });
  if (same == all.end()) {
    all.push_back(work);
  } else {
    same->number = std::max(same->number, work.number);
  }
}

void StreamOrder::use(Range range, Stream stream) {
  if (add_only(stream)) {
    return;
  }
  if (std::find(streams_.begin(), streams_.end(), stream) == streams_.end()) {
    wait_for({.stream = streams_.front()}, stream);
    add_stream(stream);
  }
  std::vector<Work> takers;
  std::vector<Map::segment_type> changed;
  const Interval whole = interval(range);
  const auto touched = ranges_.equal_range(whole);
  for (auto at = touched.first; at != touched.second; ++at) {
    const auto& [part, state] = *at;
    const auto place = std::lower_bound(state.users.begin(), state.users.end(), stream);
    const bool took = state.taker && state.taker->stream == stream;
    if (took || (place != state.users.end() && *place == stream)) {
      continue;
    }
    if (state.taker) {
      add_work(takers, *state.taker);
    }
    changed.emplace_back(part & whole, state);
    auto& users = changed.back().second.users;
    users.insert(users.begin() + (place - state.users.begin()), stream);
  }
  for (const Work& taker : takers) {
    wait_for(taker, stream);
  }
  for (const auto& segment : changed) {
    ranges_.set(segment);
  }
}

// A range that is already as this would leave it needs no wait and no change.
void StreamOrder::take_as(Range range, const Work& taker) {
  const Stream stream = taker.stream;
  if (add_only(stream)) {
    return;
  }
  std::vector<Work> others;
  if (ranges_.empty()) {
    others.push_back({.stream = streams_.front()});
  }
  const State taken{.taker = taker, .users = {}};
  bool changes = ranges_.empty();
  const auto touched = ranges_.equal_range(interval(range));
  for (auto at = touched.first; at != touched.second; ++at) {
    const State& state = at->second;
    changes = changes || state != taken;
    if (state.taker && state.taker->stream != stream) {
      add_work(others, *state.taker);
    }
    for (const Stream user : state.users) {
      if (user != stream) {
        add_work(others, {.stream = user});
      }
    }
  }
  if (!changes) {
    return;
  }
  for (const Work& other : others) {
    wait_for(other, stream);
  }
  add_stream(stream);
  ranges_.set(Map::segment_type{interval(range), taken});
}

void StreamOrder::take(Range range, Stream stream) { take_as(range, {.stream = stream}); }

// If it throws, no copy has that number.
std::int64_t StreamOrder::take_for_copy(Range range, Stream copy_stream) {
  const std::int64_t number = copies_.begin(copy_stream);
  take_as(range, {.stream = copy_stream, .number = number});
  return number;
}

void StreamOrder::check() const {
  RECOUP_CHECK(ranges_.empty() == (streams_.size() < 2));
  copies_.check();
  std::int64_t end = 0;
  for (const auto& [part, state] : ranges_) {
    RECOUP_CHECK(part.lower() == end, "a hole before ", part.lower());
    end = part.upper();
    RECOUP_CHECK(state.taker || !state.users.empty());
    RECOUP_CHECK(!state.taker || copies_.is_possible(state.taker->stream, state.taker->number));
    RECOUP_CHECK(std::is_sorted(state.users.begin(), state.users.end()));
    for (const Stream user : state.users) {
      RECOUP_CHECK(!state.taker || user != state.taker->stream);
      RECOUP_CHECK(std::find(streams_.begin(), streams_.end(), user) != streams_.end());
    }
  }
  RECOUP_CHECK(ranges_.empty() || end == std::numeric_limits<std::int64_t>::max());
}

}  // namespace recoup::detail::cuda
