#include "csrc/cuda/op_clock.h"

#include <algorithm>
#include <utility>

#include "csrc/base/check.h"

namespace recoup::detail::cuda {

Nanoseconds Roofline::estimate(Bytes moved, double flops) const {
  const double memory = static_cast<double>(moved.count()) / bytes_a_ns;
  const double compute = flops / flops_a_ns;
  return launch + Nanoseconds(static_cast<std::int64_t>(std::max(memory, compute)));
}

OpClock::OpClock(Runtime& runtime, int device) : runtime_(runtime), device_(device) {}

OpClock::~OpClock() {
  for (auto& [stream, lane] : lanes_) {
    for (const Timed& timed : lane.timed) {
      runtime_.destroy_event(timed.begin);
      runtime_.destroy_event(timed.end);
    }
    if (lane.begun) {
      runtime_.destroy_event(*lane.begun);
    }
  }
  for (const Event event : spare_) {
    runtime_.destroy_event(event);
  }
}

Event OpClock::recorded(Stream stream) {
  if (spare_.empty()) {
    spare_.push_back(runtime_.create_event(device_, true));
    ++made_;
  }
  runtime_.record(spare_.back(), stream);
  const Event event = spare_.back();
  spare_.pop_back();
  return event;
}

void OpClock::begin(Stream stream) {
  Lane& lane = lanes_[stream];
  RECOUP_CHECK(!lane.begun, "an op begins within another");
  lane.begun = recorded(stream);
}

void OpClock::end(Stream stream, Token token) {
  Lane& lane = lanes_[stream];
  RECOUP_CHECK(lane.begun, "an op ends that never began");
  const Event first = *std::exchange(lane.begun, std::nullopt);
  try {
    lane.timed.push_back({.begin = first, .end = recorded(stream), .token = token});
  } catch (...) {
    spare_.push_back(first);
    throw;
  }
}

void OpClock::cancel(Stream stream) {
  Lane& lane = lanes_[stream];
  RECOUP_CHECK(lane.begun, "an op is cancelled that never began");
  spare_.push_back(*std::exchange(lane.begun, std::nullopt));
}

void OpClock::resolve(const Resolved& resolved) {
  for (auto& [stream, lane] : lanes_) {
    while (!lane.timed.empty() && runtime_.done(lane.timed.front().end)) {
      const Timed timed = lane.timed.front();
      lane.timed.pop_front();
      spare_.push_back(timed.begin);
      spare_.push_back(timed.end);
      resolved(timed.token, runtime_.elapsed(timed.begin, timed.end));
    }
  }
}

std::size_t OpClock::pending() const {
  std::size_t pending = 0;
  for (const auto& [stream, lane] : lanes_) {
    pending += lane.timed.size();
  }
  return pending;
}

void OpClock::check() const {
  std::size_t events = spare_.size();
  for (const auto& [stream, lane] : lanes_) {
    events += 2 * lane.timed.size() + (lane.begun ? 1 : 0);
  }
  RECOUP_CHECK(events == made_, events, " events of ", made_);
}

}  // namespace recoup::detail::cuda
