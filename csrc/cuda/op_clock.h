// What ops cost on a device: time between two events around each, asked for later and never waited
// for.
//
//   e0 = begin(s)  |op|  end(s, e0, op)      ...      resolve: e1 done? cost(op) = e1 - e0
//
// Until then an op costs what a roofline says.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <vector>

#include "csrc/cuda/runtime.h"
#include "recoup/types.h"

namespace recoup::detail::cuda {

// The least time in which a device can do an op: it moves so many bytes and computes so much, both
// at once. The defaults are a slow GPU's, and no GPU launches a kernel in less.
struct Roofline {
  double bytes_a_ns = 500;
  double flops_a_ns = 10'000;
  Nanoseconds launch{2000};

  [[nodiscard]] Nanoseconds estimate(Bytes moved, double flops) const;
};

// Not thread safe. When a method throws CudaError the op that it was about has no time.
class OpClock {
 public:
  // Names an op for the caller; the clock only hands it back.
  using Token = std::uint64_t;
  using Resolved = std::function<void(Token, Nanoseconds)>;

  // The runtime must outlive it. What has begun must have ended before it is destroyed.
  OpClock(Runtime& runtime, int device);
  ~OpClock();
  OpClock(const OpClock&) = delete;
  OpClock& operator=(const OpClock&) = delete;

  // Around what an op gives to a stream. What begin() returns goes to one of the other two.
  [[nodiscard]] Event begin(Stream stream);
  void end(Stream stream, Event begun, Token token);
  // It gave nothing, or failed.
  void cancel(Event begun);

  // Calls resolved(token, time) for ops that the device is done with, in the order of their ends on
  // each stream. Asks for each stream's oldest, and for the next one while the answer is yes.
  void resolve(const Resolved& resolved);
  // Ops ended and not resolved yet.
  [[nodiscard]] std::size_t pending() const;

  // Recounts everything; throws InternalError on the first difference.
  void check() const;

 private:
  struct Timed {
    Event begin;
    Event end;
    Token token;
  };
  using Lane = std::deque<Timed>;

  // An event recorded on the stream.
  Event recorded(Stream stream);

  Runtime& runtime_;
  int device_;
  std::map<Stream, Lane> lanes_;
  std::vector<Event> spare_;
  std::size_t made_ = 0;
  std::size_t begun_ = 0;  // not ended yet
};

}  // namespace recoup::detail::cuda
