// HostCopies: asynchronous copies between an arena and pinned memory of the host, for spilling.
//
//   program's stream   |op|op|op|op|op|op|op|...        A copy waits for work that used the bytes.
//   out                      |a->host|b->host|          Later users of the bytes wait for the copy.
//   in                                   |host->c|
#pragma once

#include <cstdint>
#include <vector>

#include "csrc/base/handle.h"
#include "csrc/cuda/runtime.h"
#include "csrc/cuda/stream_order.h"

namespace recoup::detail::cuda {

// Not thread safe. Methods throw CudaError if the driver fails; then nothing was copied.
class HostCopies {
 public:
  // Identifies a copy that was started.
  struct Ticket {
    Event event;  // recorded after the copy
    Stream stream;
    std::int64_t number = 0;  // in StreamOrder
  };

  // Creates a stream for each direction, because a link carries both at the same time. The runtime
  // must outlive this object. All methods are passed the same StreamOrder, which this object must
  // outlive.
  HostCopies(Runtime& runtime, int device);
  // Waits until all copies are done.
  ~HostCopies();
  HostCopies(const HostCopies&) = delete;
  HostCopies& operator=(const HostCopies&) = delete;

  // Starts a copy of the range, which begins at `from`, to pinned memory. The range may be given to
  // another user at once, if that user is ordered by `order`.
  [[nodiscard]] Ticket copy_out(StreamOrder& order, Range range, const void* from, void* pinned);
  // Starts a copy from pinned memory to the range, which begins at `to`.
  [[nodiscard]] Ticket copy_in(StreamOrder& order, Range range, void* to, const void* pinned);

  // Later copies of the other direction run after that copy. Copies of one direction are executed
  // in order.
  void order_other_after(StreamOrder& order, const Ticket& ticket);

  // Whether the host may read the target of a copy out, or reuse the source of a copy in.
  [[nodiscard]] bool done(const Ticket& ticket) const { return runtime_.done(ticket.event); }
  // Blocks the host until the copy is done.
  void wait(const Ticket& ticket) { runtime_.synchronize(ticket.event); }
  // Every ticket must be released once.
  void release(const Ticket& ticket) { lane_of(ticket).spare.push_back(ticket.event); }
  // Releases the ticket if the copy is done. Then later work needs no wait for it. Returns whether
  // it is done.
  [[nodiscard]] bool release_if_done(StreamOrder& order, const Ticket& ticket);
  // Blocks the host until all copies are done.
  void wait_for_all() noexcept;

  // Verifies all counts; throws InternalError on the first difference.
  void check(std::size_t held_tickets) const;

 private:
  using OwnedStream = Handle<Runtime, Stream, &Runtime::destroy_stream>;

  struct Lane {
    OwnedStream stream;
    std::vector<Event> spare;  // recorded on this stream only: Note [Waits for copies]
  };

  Ticket copy(StreamOrder& order, Lane& lane, Range range, void* to, const void* from);
  [[nodiscard]] Lane& lane_of(const Ticket& ticket) {
    return ticket.stream == out_.stream.id() ? out_ : in_;
  }

  Runtime& runtime_;
  int device_;
  Lane out_;
  Lane in_;
  std::size_t made_ = 0;
};

}  // namespace recoup::detail::cuda
