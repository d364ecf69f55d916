// Copies between an arena and pinned memory of the host, beside the program's work: what spilling
// is made of.
//
//   program's stream   |op|op|op|op|op|op|op|...        each copy waits for who touched the bytes,
//   out                      |a->host|b->host|          and who takes them next waits for the copy
//   in                                   |host->c|
#pragma once

#include <vector>

#include "csrc/cuda/runtime.h"
#include "csrc/cuda/stream_order.h"

namespace recoup::detail::cuda {

// Not thread safe. Methods throw CudaError when the driver fails; then nothing was copied.
class HostCopies {
 public:
  // A copy that was asked for.
  struct Ticket {
    Event event;
  };

  // Makes a stream for each direction, for a link carries both at once. The runtime must outlive
  // it, and it every order that has seen its copies.
  HostCopies(Runtime& runtime, int device);
  // Waits until all are done.
  ~HostCopies();
  HostCopies(const HostCopies&) = delete;
  HostCopies& operator=(const HostCopies&) = delete;

  // Copies the range, which begins at `from`, to pinned memory. Nobody waits; the range may be
  // given away at once, to who is ordered by `order`.
  [[nodiscard]] Ticket copy_out(StreamOrder& order, Range range, const void* from, void* pinned);
  // Copies pinned memory into the range, which begins at `to`.
  [[nodiscard]] Ticket copy_in(StreamOrder& order, Range range, void* to, const void* pinned);

  // What is copied out from now on is behind that copy in; and the other way round. Of one
  // direction all are in the order in which they were asked for.
  void order_out_behind(Ticket in) { runtime_.wait(out_, in.event); }
  void order_in_behind(Ticket out) { runtime_.wait(in_, out.event); }

  // Whether the host may read what was copied out, or use again what was copied from. Every ticket
  // is given to release() once.
  [[nodiscard]] bool done(Ticket ticket) const { return runtime_.done(ticket.event); }
  // The host waits until it is.
  void wait(Ticket ticket) { runtime_.synchronize(ticket.event); }
  void release(Ticket ticket) { spare_.push_back(ticket.event); }
  // The host waits until all are.
  void wait_for_all() noexcept;

  // Recounts everything; throws InternalError on the first difference.
  void check(std::size_t held_tickets) const;

 private:
  Ticket copy(StreamOrder& order, Range range, Stream stream, void* to, const void* from);

  Runtime& runtime_;
  int device_;
  Stream out_;
  Stream in_;
  std::vector<Event> spare_;
  std::size_t made_ = 0;
};

}  // namespace recoup::detail::cuda
