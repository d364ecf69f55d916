// HostCopies: asynchronous copies between an arena and pinned memory of the host, for spilling.
//
//   program's stream   |op|op|op|op|op|op|op|...        A copy waits for work that used the bytes.
//   out                      |a->host|b->host|          Later users of the bytes wait for the copy.
//   in                                   |host->c|
#pragma once

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
    Event event;
  };

  // Creates a stream for each direction, because a link carries both at the same time. The runtime
  // must outlive this object, and this object must outlive every StreamOrder that has seen its
  // copies.
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

  // Later copies out wait for that copy in, and vice versa. Copies of one direction are executed in
  // order.
  void order_out_after(Ticket in) { runtime_.wait(out_.id(), in.event); }
  void order_in_after(Ticket out) { runtime_.wait(in_.id(), out.event); }

  // Whether the host may read the target of a copy out, or reuse the source of a copy in. Every
  // ticket must be released once.
  [[nodiscard]] bool done(Ticket ticket) const { return runtime_.done(ticket.event); }
  // Blocks the host until the copy is done.
  void wait(Ticket ticket) { runtime_.synchronize(ticket.event); }
  void release(Ticket ticket) { spare_.push_back(ticket.event); }
  // Blocks the host until all copies are done.
  void wait_for_all() noexcept;

  // Verifies all counts; throws InternalError on the first difference.
  void check(std::size_t held_tickets) const;

 private:
  using OwnedStream = Handle<Runtime, Stream, &Runtime::destroy_stream>;

  Ticket copy(StreamOrder& order, Range range, Stream stream, void* to, const void* from);

  Runtime& runtime_;
  int device_;
  OwnedStream out_;
  OwnedStream in_;
  std::vector<Event> spare_;
  std::size_t made_ = 0;
};

}  // namespace recoup::detail::cuda
