#include "csrc/cuda/host_tier.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "csrc/base/check.h"
#include "csrc/base/strings.h"
#include "csrc/cuda/error.h"

namespace recoup::detail::cuda {

HostTier::HostTier(Runtime& runtime, int device, Bytes size, Bytes extent)
    : runtime_(runtime),
      device_(device),
      size_(size),
      extent_(extent),
      extents_(static_cast<std::size_t>((size.count() + extent.count() - 1) / extent.count())),
      copies_(runtime, device) {}

HostTier::~HostTier() {
  for (Lane& lane : lanes_) {
    for (const PendingCopy& pending : lane.pending) {
      copies_.release(pending.ticket);
    }
  }
}

// The last extent ends with the tier.
Bytes HostTier::extent_size(std::size_t index) const {
  return std::min(extent_, size_ - Bytes(static_cast<std::int64_t>(index) * extent_.count()));
}

// Pins the memory of a place. False: the host has not enough.
bool HostTier::back(Bytes place, Bytes size) {
  RECOUP_CHECK(place >= Bytes(0) && size > Bytes(0) && place + size <= size_);
  const auto last = static_cast<std::size_t>((place + size - Bytes(1)).count() / extent_.count());
  for (auto i = static_cast<std::size_t>(place.count() / extent_.count()); i <= last; ++i) {
    if (extents_[i] != nullptr) {
      continue;
    }
    void* const memory = runtime_.allocate_pinned(extent_size(i));
    if (memory == nullptr) {
      return false;
    }
    extents_[i] = Pinned(memory, [this](void* held) { runtime_.release_pinned(held); });
    pinned_ += extent_size(i);
  }
  return true;
}

void HostTier::release_done(StreamOrder& order, Lane& lane) {
  while (!lane.pending.empty() && copies_.release_if_done(order, lane.pending.front().ticket)) {
    lane.pending.pop_front();
  }
}

// The last copy of the other direction that touches the place is executed after all others.
void HostTier::wait_for_other(StreamOrder& order, Way way, Bytes begin, Bytes end) {
  const std::deque<PendingCopy>& pending = lane(way == Way::kOut ? Way::kIn : Way::kOut).pending;
  const auto last = std::find_if(pending.rbegin(), pending.rend(), [&](const PendingCopy& copy) {
    return copy.begin < end && begin < copy.end;
  });
  if (last != pending.rend()) {
    copies_.order_other_after(order, last->ticket);
  }
}

// Copies in pieces if a place spans several extents.
void HostTier::copy(Way way, StreamOrder& order, Bytes place, Range range, char* bytes) {
  for (Lane& each : lanes_) {
    release_done(order, each);
  }
  wait_for_other(order, way, place, place + range.size);
  std::deque<PendingCopy>& pending = lane(way).pending;
  for (Bytes done{0}; done < range.size;) {
    const std::int64_t at = (place + done).count();
    const auto extent = static_cast<std::size_t>(at / extent_.count());
    const Bytes skipped(at % extent_.count());
    const Bytes size = std::min(range.size - done, extent_size(extent) - skipped);
    const Range piece{.offset = range.offset + done, .size = size};
    char* const here = static_cast<char*>(extents_[extent].get()) + skipped.count();
    char* const there = bytes + done.count();
    pending.push_back({.begin = place + done,
                       .end = place + done + size,
                       .ticket = way == Way::kOut ? copies_.copy_out(order, piece, there, here)
                                                  : copies_.copy_in(order, piece, there, here)});
    done += size;
  }
}

// If a copy could be started only in part, that part is complete when this returns, so no caller
// needs to wait for it.
void HostTier::begin(Way way, Bytes place, const std::function<void()>& give) {
  std::exception_ptr failure;
  try {
    give();
  } catch (const CudaError&) {
    failure = std::current_exception();
    copies_.wait_for_all();
  }
  const bool fresh = lane(way).begun.emplace(place.count(), failure).second;
  RECOUP_CHECK(fresh, "a copy at ", place.count(), " has not ended");
}

void HostTier::forget(Bytes begin, Bytes end) {
  auto at = written_.upper_bound(begin.count());
  if (at != written_.begin() && std::prev(at)->first + std::prev(at)->second > begin.count()) {
    --at;
  }
  while (at != written_.end() && at->first < end.count()) {
    at = written_.erase(at);
  }
}

void HostTier::begin_write(StreamOrder& order, Bytes to, Range range, const void* from) {
  begin(Way::kOut, to, [&] {
    forget(to, to + range.size);
    if (!back(to, range.size)) {
      throw CudaError(str_cat("the host failed to pin ", recoup::to_string(extent_), " of memory"));
    }
    copy(Way::kOut, order, to, range, static_cast<char*>(const_cast<void*>(from)));
    written_.emplace(to.count(), range.size.count());
  });
}

bool HostTier::end_write(Bytes to) {
  const auto ended = lane(Way::kOut).begun.extract(to.count());
  RECOUP_CHECK(!ended.empty());
  return ended.mapped() == nullptr;
}

void HostTier::begin_read(StreamOrder& order, Range range, void* to, Bytes from) {
  const auto found = written_.find(from.count());
  RECOUP_CHECK(found != written_.end() && found->second == range.size.count(),
               "reads what was not written at ", from.count());
  begin(Way::kIn, from, [&] { copy(Way::kIn, order, from, range, static_cast<char*>(to)); });
}

void HostTier::end_read(Bytes from) {
  const auto ended = lane(Way::kIn).begun.extract(from.count());
  RECOUP_CHECK(!ended.empty());
  if (ended.mapped() != nullptr) {
    std::rethrow_exception(ended.mapped());
  }
}

Bytes HostTier::measured_size() const {
  constexpr Bytes kLong(16 << 20);
  return std::min({kLong, extent_, size_});
}

std::optional<LinkSpeed> HostTier::measure() {
  const Bytes size = measured_size();
  return back(Bytes(0), size) ? measure_link(runtime_, device_, extents_.front().get(), size)
                              : std::nullopt;
}

void HostTier::check() const {
  Bytes pinned{0};
  for (std::size_t i = 0; i < extents_.size(); ++i) {
    pinned += extents_[i] != nullptr ? extent_size(i) : Bytes(0);
  }
  RECOUP_CHECK(pinned == pinned_ && pinned_ <= size_);
  std::int64_t end = 0;
  for (const auto& [place, bytes] : written_) {
    RECOUP_CHECK(place >= end && bytes > 0);
    end = place + bytes;
    for (std::int64_t at = place; at < end; at += extent_.count() - at % extent_.count()) {
      RECOUP_CHECK(extents_[static_cast<std::size_t>(at / extent_.count())] != nullptr);
    }
  }
  RECOUP_CHECK(end <= size_.count());
  copies_.check(lanes_[0].pending.size() + lanes_[1].pending.size());
}

}  // namespace recoup::detail::cuda
