#include "csrc/cuda/host_copies.h"

#include "csrc/base/check.h"

namespace recoup::detail::cuda {

HostCopies::HostCopies(Runtime& runtime, int device)
    : runtime_(runtime),
      device_(device),
      out_(runtime, runtime.create_stream(device)),
      in_(runtime, runtime.create_stream(device)) {}

HostCopies::~HostCopies() {
  wait_for_all();
  for (const Event event : spare_) {
    runtime_.destroy_event(event);
  }
}

void HostCopies::wait_for_all() noexcept {
  for (const Stream stream : {out_.id(), in_.id()}) {
    try {
      runtime_.synchronize(stream);
    } catch (...) {
      // The driver is gone, and so are its copies.
    }
  }
}

HostCopies::Ticket HostCopies::copy(StreamOrder& order, Range range, Stream stream, void* to,
                                    const void* from) {
  if (spare_.empty()) {
    spare_.push_back(runtime_.create_event(device_, false));
    ++made_;
  }
  order.take(range, stream);
  runtime_.copy(stream, to, from, range.size);
  const Ticket ticket{spare_.back()};
  runtime_.record(ticket.event, stream);
  spare_.pop_back();
  return ticket;
}

HostCopies::Ticket HostCopies::copy_out(StreamOrder& order, Range range, const void* from,
                                        void* pinned) {
  return copy(order, range, out_.id(), pinned, from);
}

HostCopies::Ticket HostCopies::copy_in(StreamOrder& order, Range range, void* to,
                                       const void* pinned) {
  return copy(order, range, in_.id(), to, pinned);
}

void HostCopies::check(std::size_t held_tickets) const {
  RECOUP_CHECK(spare_.size() + held_tickets == made_, spare_.size(), " + ", held_tickets,
               " events of ", made_);
}

}  // namespace recoup::detail::cuda
