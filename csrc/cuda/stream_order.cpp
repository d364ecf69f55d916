#include "csrc/cuda/stream_order.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "csrc/base/check.h"

namespace recoup::detail::cuda {

StreamOrder::StreamOrder(Runtime& runtime, int device) : runtime_(runtime), device_(device) {}

StreamOrder::~StreamOrder() {
  if (event_) {
    runtime_.destroy_event(*event_);
  }
}

StreamOrder::Interval StreamOrder::interval(Range range) {
  RECOUP_CHECK(range.offset >= Bytes(0) && range.size > Bytes(0));
  return {range.offset.count(), (range.offset + range.size).count()};
}

// What happened on the first stream before there was a second one is in no range. So every later
// stream waits for it once, and it counts as a user of everything.
bool StreamOrder::several(Stream stream) {
  if (std::find(streams_.begin(), streams_.end(), stream) != streams_.end()) {
    return streams_.size() > 1;
  }
  streams_.push_back(stream);
  if (streams_.size() == 1) {
    return false;
  }
  if (streams_.size() == 2) {
    ranges_.set(Map::segment_type{Interval(0, std::numeric_limits<std::int64_t>::max()),
                                  State{.writer = std::nullopt, .users = {streams_.front()}}});
  }
  wait_for(streams_.front(), stream);
  return true;
}

void StreamOrder::wait_for(Stream other, Stream stream) {
  if (!event_) {
    event_ = runtime_.create_event(device_, false);
  }
  runtime_.record(*event_, other);
  runtime_.wait(stream, *event_);
  ++waits_;
}

void StreamOrder::use(Range range, Stream stream) {
  if (!several(stream)) {
    return;
  }
  std::vector<Stream> writers;
  const auto touched = ranges_.equal_range(interval(range));
  for (auto at = touched.first; at != touched.second; ++at) {
    const State& state = at->second;
    if (state.writer && state.writer != stream &&
        !std::binary_search(state.users.begin(), state.users.end(), stream) &&
        std::find(writers.begin(), writers.end(), *state.writer) == writers.end()) {
      writers.push_back(*state.writer);
    }
  }
  for (const Stream writer : writers) {
    wait_for(writer, stream);
  }
  add_user(range, stream);
}

void StreamOrder::add_user(Range range, Stream stream) {
  std::vector<std::pair<Interval, State>> changed;
  const Interval whole = interval(range);
  const auto touched = ranges_.equal_range(whole);
  for (auto at = touched.first; at != touched.second; ++at) {
    const auto& [part, state] = *at;
    const auto place = std::lower_bound(state.users.begin(), state.users.end(), stream);
    if (state.writer != stream && (place == state.users.end() || *place != stream)) {
      changed.emplace_back(part & whole, state);
      auto& users = changed.back().second.users;
      users.insert(users.begin() + (place - state.users.begin()), stream);
    }
  }
  for (const auto& segment : changed) {
    ranges_.set(segment);
  }
}

void StreamOrder::wait_for_all(Range range, Stream stream) {
  std::vector<Stream> others;
  const auto add = [&](Stream other) {
    if (other != stream && std::find(others.begin(), others.end(), other) == others.end()) {
      others.push_back(other);
    }
  };
  const auto touched = ranges_.equal_range(interval(range));
  for (auto at = touched.first; at != touched.second; ++at) {
    const State& state = at->second;
    if (state.writer) {
      add(*state.writer);
    }
    std::for_each(state.users.begin(), state.users.end(), add);
  }
  for (const Stream other : others) {
    wait_for(other, stream);
  }
}

void StreamOrder::read(Range range, Stream stream) {
  if (several(stream)) {
    wait_for_all(range, stream);
    add_user(range, stream);
  }
}

void StreamOrder::take(Range range, Stream stream) {
  if (several(stream)) {
    wait_for_all(range, stream);
    ranges_.set(
        Map::segment_type{interval(range), State{.writer = std::nullopt, .users = {stream}}});
  }
}

void StreamOrder::write(Range range, Stream stream) {
  if (several(stream)) {
    wait_for_all(range, stream);
    ranges_.set(Map::segment_type{interval(range), State{.writer = stream, .users = {}}});
  }
}

void StreamOrder::check() const {
  RECOUP_CHECK(ranges_.empty() == (streams_.size() < 2));
  std::int64_t end = 0;
  for (const auto& [part, state] : ranges_) {
    RECOUP_CHECK(part.lower() == end, "a hole before ", part.lower());
    end = part.upper();
    RECOUP_CHECK(state.writer || !state.users.empty());
    RECOUP_CHECK(std::is_sorted(state.users.begin(), state.users.end()));
    for (const Stream user : state.users) {
      RECOUP_CHECK(user != state.writer);
      RECOUP_CHECK(std::find(streams_.begin(), streams_.end(), user) != streams_.end());
    }
  }
  RECOUP_CHECK(ranges_.empty() || end == std::numeric_limits<std::int64_t>::max());
}

}  // namespace recoup::detail::cuda
