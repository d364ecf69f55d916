#include "csrc/cuda/op_clock.h"

#include <algorithm>

#include "csrc/base/at_end.h"
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
    for (const Timed& timed : lane) {
      runtime_.destroy_event(timed.begin);
      runtime_.destroy_event(timed.end);
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

Event OpClock::begin(Stream stream) {
  const Event begun = recorded(stream);
  ++begun_;
  return begun;
}

void OpClock::end(Stream stream, Event begun, Token token) {
  AtEnd not_recorded([&] { cancel(begun); });
  lanes_[stream].push_back({.begin = begun, .end = recorded(stream), .token = token});
  not_recorded.cancel();
  --begun_;
}

void OpClock::cancel(Event begun) {
  spare_.push_back(begun);
  --begun_;
}

void OpClock::resolve(const Resolved& resolved) {
  for (auto& [stream, lane] : lanes_) {
    while (!lane.empty() && runtime_.done(lane.front().end)) {
      const Timed timed = lane.front();
      lane.pop_front();
      spare_.push_back(timed.begin);
      spare_.push_back(timed.end);
      resolved(timed.token, runtime_.elapsed(timed.begin, timed.end));
    }
  }
}

std::size_t OpClock::pending() const {
  std::size_t pending = 0;
  for (const auto& [stream, lane] : lanes_) {
    pending += lane.size();
  }
  return pending;
}

void OpClock::check() const {
  const std::size_t events = spare_.size() + 2 * pending() + begun_;
  RECOUP_CHECK(events == made_, events, " events of ", made_);
}

}  // namespace recoup::detail::cuda
