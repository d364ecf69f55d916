// OpTimes: the times of a session's ops on a device whose work runs later, on streams.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <unordered_map>

#include "csrc/cuda/op_clock.h"
#include "csrc/cuda/runtime.h"
#include "csrc/cuda/timing_sample.h"
#include "csrc/engine/base/cost_memory.h"
#include "csrc/engine/program/engine.h"

namespace recoup::detail {

// The calling thread's current stream on the device.
[[nodiscard]] cuda::Stream current_stream(const c10::impl::VirtualGuardImpl& guard,
                                          c10::Device device);

// An op whose cost will be measured later.
struct TimedOp {
  ValueTicket made;  // one of its results; none if all are non-recomputable
  std::uint64_t kind = 0;
  Nanoseconds estimate{0};
};

// Called under the session's lock.
class OpTimes {
 public:
  // The runtime must outlive this object. `failure` gets the errors of end_op(), which the caller
  // must throw later.
  OpTimes(cuda::Runtime& runtime, c10::Device device, std::exception_ptr& failure)
      : device_(device),
        runtime_(runtime),
        guard_(device.type()),
        failure_(failure),
        clock_(runtime, device.index()) {}
  OpTimes(const OpTimes&) = delete;
  OpTimes& operator=(const OpTimes&) = delete;

  struct Begun {
    cuda::Stream stream;
    cuda::Event event;
  };
  [[nodiscard]] Begun begin_op();
  void cancel_op(const Begun& begun) { clock_.cancel(begun.event); }
  struct Estimate {
    Nanoseconds cost{0};
    bool measured = false;  // by earlier ops of the kind; otherwise a roofline estimate
  };
  [[nodiscard]] Estimate estimate(std::uint64_t kind, Bytes moved, double flops) const;
  // See TimingSample.
  [[nodiscard]] bool in_sample(std::uint64_t kind) { return sample_->count(kind); }
  void time_next(std::uint64_t kind) { sample_->time_next(kind); }
  // To be called when the op was enqueued on its stream. resolve() reports its cost for what
  // name_op() has registered.
  [[nodiscard]] cuda::OpClock::Token end_op(const Begun& begun) noexcept;
  void name_op(cuda::OpClock::Token token, const TimedOp& op) { timed_[token] = op; }
  // The host waits until the op is done.
  [[nodiscard]] Nanoseconds time_now(const Begun& begun);
  // Reports the costs that are known by now to the engine. Acts once in several calls, since a
  // query costs as much as an event.
  void resolve_now_and_then(Engine& engine);
  // While a graph is captured no op is timed: kernels do not run, and events are parts of the
  // graph.
  void pause(bool paused) { paused_ = paused; }
  [[nodiscard]] bool paused() const { return paused_; }

  void check() const;

 private:
  void resolve(Engine& engine);

  c10::Device device_;
  cuda::Runtime& runtime_;
  c10::impl::VirtualGuardImpl guard_;
  std::exception_ptr& failure_;
  cuda::OpClock clock_;
  std::unique_ptr<cuda::TimingSample> sample_ = std::make_unique<cuda::TimingSample>();
  std::unordered_map<cuda::OpClock::Token, TimedOp> timed_;
  cuda::OpClock::Token last_token_ = 0;
  int until_resolve_ = 0;
  bool paused_ = false;
  CostMemory costs_;  // by kind of op
};

}  // namespace recoup::detail
