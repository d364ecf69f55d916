#include "csrc/cuda/host_copies.h"

#include "csrc/base/check.h"

namespace recoup::detail::cuda {

HostCopies::HostCopies(Runtime& runtime, int device)
    : runtime_(runtime),
      device_(device),
      out_{.stream = OwnedStream(runtime, runtime.create_stream(device)), .spare = {}},
      in_{.stream = OwnedStream(runtime, runtime.create_stream(device)), .spare = {}} {}

HostCopies::~HostCopies() {
  wait_for_all();
  for (const Lane* const lane : {&out_, &in_}) {
    for (const Event event : lane->spare) {
      runtime_.destroy_event(event);
    }
  }
}

void HostCopies::wait_for_all() noexcept {
  for (const Stream stream : {out_.stream.id(), in_.stream.id()}) {
    try {
      runtime_.synchronize(stream);
    } catch (...) {
      // The driver is gone, and so are its copies.
    }
  }
}

HostCopies::Ticket HostCopies::copy(StreamOrder& order, Lane& lane, Range range, void* to,
                                    const void* from) {
  if (lane.spare.empty()) {
    lane.spare.push_back(runtime_.create_event(device_, false));
    ++made_;
  }
  const Stream stream = lane.stream.id();
  const std::int64_t number = order.take_for_copy(range, stream);
  runtime_.copy(stream, to, from, range.size);
  const Ticket ticket{.event = lane.spare.back(), .stream = stream, .number = number};
  runtime_.record(ticket.event, stream);
  lane.spare.pop_back();
  order.set_copy_end(stream, number, ticket.event);
  return ticket;
}

HostCopies::Ticket HostCopies::copy_out(StreamOrder& order, Range range, const void* from,
                                        void* pinned) {
  return copy(order, out_, range, pinned, from);
}

HostCopies::Ticket HostCopies::copy_in(StreamOrder& order, Range range, void* to,
                                       const void* pinned) {
  return copy(order, in_, range, to, pinned);
}

void HostCopies::order_other_after(StreamOrder& order, const Ticket& ticket) {
  const Lane& other = &lane_of(ticket) == &out_ ? in_ : out_;
  order.wait_for_copy(ticket.stream, ticket.number, other.stream.id());
}

bool HostCopies::release_if_done(StreamOrder& order, const Ticket& ticket) {
  if (!done(ticket)) {
    return false;
  }
  order.set_copy_done(ticket.stream, ticket.number);
  release(ticket);
  return true;
}

void HostCopies::check(std::size_t held_tickets) const {
  const std::size_t spare = out_.spare.size() + in_.spare.size();
  RECOUP_CHECK(spare + held_tickets == made_, spare, " + ", held_tickets, " events of ", made_);
}

}  // namespace recoup::detail::cuda
