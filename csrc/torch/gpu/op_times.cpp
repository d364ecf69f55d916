#include "csrc/torch/gpu/op_times.h"

#include "csrc/base/check.h"

namespace recoup::detail {

cuda::Stream current_stream(const c10::impl::VirtualGuardImpl& guard, c10::Device device) {
  return {.handle = guard.getStreamNativeHandle(guard.getStream(device)), .device = device.index()};
}

OpTimes::Begun OpTimes::begin_op() {
  const cuda::Stream here = current_stream(guard_, device_);
  return {.stream = here, .event = clock_.begin(here)};
}

OpTimes::Estimate OpTimes::estimate(std::uint64_t kind, Bytes moved, double flops) const {
  const auto known = costs_.belief(kind);
  return {.cost = known ? *known : cuda::Roofline().estimate(moved, flops),
          .measured = known.has_value()};
}

cuda::OpClock::Token OpTimes::end_op(const Begun& begun) noexcept {
  try {
    clock_.end(begun.stream, begun.event, ++last_token_);
  } catch (...) {
    failure_ = std::current_exception();
  }
  return last_token_;
}

Nanoseconds OpTimes::time_now(const Begun& begun) {
  const cuda::Event end = runtime_.create_event(device_.index(), true);
  runtime_.record(end, begun.stream);
  runtime_.synchronize(end);
  const Nanoseconds time = runtime_.elapsed(begun.event, end);
  runtime_.destroy_event(end);
  cancel_op(begun);
  return time;
}

void OpTimes::resolve_now_and_then(Engine& engine) {
  constexpr int kBatch = 16;
  if (--until_resolve_ < 0) {
    until_resolve_ = kBatch;
    resolve(engine);
  }
}

void OpTimes::resolve(Engine& engine) {
  clock_.resolve([&](cuda::OpClock::Token token, Nanoseconds cost) {
    const auto found = timed_.find(token);
    if (found == timed_.end()) {
      return;  // the op failed after its kernel
    }
    const TimedOp& op = found->second;
    engine.op().learn_cost(op.made, op.estimate, costs_.learn(op.kind, cost));
    timed_.erase(found);
  });
}

void OpTimes::check() const {
  clock_.check();
  RECOUP_CHECK(timed_.size() <= clock_.pending());
}

}  // namespace recoup::detail
