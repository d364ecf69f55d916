// OpClock: measures ops on a device by the time between two events around each. The host queries
// the events later and never waits for them.
//
//   e0 = begin(s)  |op|  end(s, e0, op)      ...      resolve: e1 done? cost(op) = e1 - e0
//
// Until then the cost of an op is estimated by a roofline.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <vector>

#include "csrc/cuda/runtime.h"
#include "recoup/types.h"

namespace recoup::detail::cuda {

// The least time in which a device can execute an op, if it moves bytes and computes at the same
// time. The defaults are those of a slow GPU; no GPU launches a kernel faster.
struct Roofline {
  double bytes_a_ns = 500;
  double flops_a_ns = 10'000;
  Nanoseconds launch{2000};

  [[nodiscard]] Nanoseconds estimate(Bytes moved, double flops) const;
};

// Not thread safe. If a method throws CudaError, the op in question has no measurement.
class OpClock {
 public:
  // Identifies an op for the caller; the clock only returns it.
  using Token = std::uint64_t;
  using Resolved = std::function<void(Token, Nanoseconds)>;

  // The runtime must outlive it. Every begun measurement must be ended or cancelled before
  // destruction.
  OpClock(Runtime& runtime, int device);
  ~OpClock();
  OpClock(const OpClock&) = delete;
  OpClock& operator=(const OpClock&) = delete;

  // Call these around the work that an op gives to a stream. The result of begin() must be passed
  // to end() or cancel().
  [[nodiscard]] Event begin(Stream stream);
  void end(Stream stream, Event begun, Token token);
  // The op gave no work to the stream, or failed.
  void cancel(Event begun);

  // Calls resolved(token, time) for ops that the device has finished, in the order of their ends on
  // each stream. Queries the oldest op of each stream, and the next one as long as ops are
  // finished.
  void resolve(const Resolved& resolved);
  // Number of ops that are ended and not resolved.
  [[nodiscard]] std::size_t pending() const;

  // Verifies all counts; throws InternalError on the first difference.
  void check() const;

 private:
  struct Timed {
    Event begin;
    Event end;
    Token token;
  };
  using Lane = std::deque<Timed>;

  // Records an event on the stream.
  Event recorded(Stream stream);

  Runtime& runtime_;
  int device_;
  std::map<Stream, Lane> lanes_;
  std::vector<Event> spare_;
  std::size_t made_ = 0;
  std::size_t begun_ = 0;  // begun and not ended yet
};

}  // namespace recoup::detail::cuda
