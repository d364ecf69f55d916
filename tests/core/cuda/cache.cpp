#include "tests/core/cuda/cache.h"

#include <algorithm>
#include <utility>

#include "csrc/base/check.h"
#include "csrc/cuda/error.h"

namespace recoup::detail::cuda {
namespace {

constexpr Bytes kAlignment{512};
constexpr Bytes kSmallest = 1_MiB;  // below a large block
constexpr Bytes kHuge = 10_MiB;     // below a huge block
constexpr Bytes kSmallSegment = 2_MiB;
constexpr Bytes kLargeSegment = 20_MiB;

Bytes round_up(Bytes size, Bytes to) {
  return Bytes((size.count() + to.count() - 1) / to.count() * to.count());
}

}  // namespace

Cache::Segment::Segment(Kind segment_kind, Stream owner, char* start, Bytes size)
    : kind(segment_kind),
      stream(owner),
      base(start),
      pool({.capacity = size, .alignment = kAlignment}) {}

Cache::Cache(Runtime& runtime, int device) : runtime_(runtime), device_(device) {}

Cache::~Cache() {
  for (const Waiting& block : waiting_) {
    for (const Event event : block.events) {
      runtime_.destroy_event(event);
    }
  }
  for (const auto& [base, segment] : segments_) {
    runtime_.release(device_, base);
  }
}

Cache::Kind Cache::kind_of(Bytes size) {
  if (size <= kSmallest) {
    return Kind::kSmall;
  }
  return size <= kHuge ? Kind::kLarge : Kind::kHuge;
}

// Returns the segment whose largest free block is the smallest that is large enough.
Cache::Segment* Cache::segment_for(Bytes size, Kind kind, Stream stream) {
  Segment* best = nullptr;
  for (const auto& [base, segment] : segments_) {
    const Bytes room = segment->pool.largest_free();
    // A huge block may leave at most a fifth of its segment unused, because the segment is not
    // split.
    const bool wastes = kind == Kind::kHuge && room > size + Bytes(size.count() / 4);
    if (segment->kind == kind && segment->stream == stream && room >= size && !wastes &&
        (best == nullptr || room < best->pool.largest_free())) {
      best = segment.get();
    }
  }
  return best;
}

void* Cache::device_memory(Bytes size, Shortage shortage) {
  void* memory = runtime_.allocate(device_, size);
  if (memory == nullptr && shortage == Shortage::kMakeRoom) {
    end_waiting(true);
    empty();
    memory = runtime_.allocate(device_, size);
  }
  return memory;
}

Cache::Segment* Cache::add_segment(Bytes size, Kind kind, Stream stream, Shortage shortage) {
  const Bytes whole = kind == Kind::kSmall   ? kSmallSegment
                      : kind == Kind::kLarge ? kLargeSegment
                                             : round_up(size, kSmallSegment);
  auto* const base = static_cast<char*>(device_memory(whole, shortage));
  if (base == nullptr) {
    return nullptr;
  }
  try {
    Segment* const segment =
        segments_.emplace(base, std::make_unique<Segment>(kind, stream, base, whole))
            .first->second.get();
    reserved_ += whole;
    return segment;
  } catch (...) {
    runtime_.release(device_, base);
    throw;
  }
}

void* Cache::allocate(Bytes wanted, Stream stream, Shortage shortage) {
  RECOUP_CHECK(wanted > Bytes(0));
  end_waiting(false);
  const Bytes size = round_up(wanted, kAlignment);
  const Kind kind = kind_of(size);
  Segment* segment = segment_for(size, kind, stream);
  if (segment == nullptr) {
    segment = add_segment(size, kind, stream, shortage);
  }
  if (segment == nullptr) {
    return nullptr;
  }
  const auto block = segment->pool.allocate(size, Zone::kLow);
  RECOUP_CHECK(block.has_value());
  void* const memory = segment->base + segment->pool.offset(*block).count();
  try {
    places_.emplace(memory, Place{.segment = segment, .block = *block, .users = {}});
  } catch (...) {
    segment->pool.free(*block);
    throw;
  }
  used_ += size;
  return memory;
}

bool Cache::owns(const void* memory) const { return places_.contains(memory); }

void Cache::free(void* memory) {
  const auto found = places_.find(memory);
  RECOUP_CHECK(found != places_.end(), "freed what was never allocated");
  const Place& place = found->second;
  Pool& pool = place.segment->pool;
  if (!place.users.empty()) {
    Waiting block{
        .segment = place.segment, .block = place.block, .unrecorded = place.users, .events = {}};
    record_users(block);
    waiting_.push_back(std::move(block));
  }
  used_ -= pool.size(place.block);
  if (place.users.empty()) {
    pool.free(place.block);
  }
  places_.erase(found);
}

// An event recorded during a capture would become part of the graph. So a stream that is being
// captured is retried later, also if another thread began the capture during record(). If the
// driver fails, the block is never freed, which is safe.
void Cache::record_users(Waiting& block) {
  std::erase_if(block.unrecorded, [&](Stream stream) {
    try {
      if (runtime_.capturing(stream)) {
        return false;
      }
      block.events.push_back(runtime_.create_event(stream.device, false));
      runtime_.record(block.events.back(), stream);
      if (!runtime_.capturing(stream)) {
        return true;
      }
      runtime_.destroy_event(block.events.back());
      block.events.pop_back();
      return false;
    } catch (const CudaError&) {
      return false;
    }
  });
}

// Frees the blocks whose users have finished. With `wait` the host waits for the other users.
void Cache::end_waiting(bool wait) {
  for (std::size_t i = 0; i < waiting_.size();) {
    Waiting& block = waiting_[i];
    record_users(block);
    while (!block.events.empty() && (wait || runtime_.done(block.events.back()))) {
      if (wait) {
        runtime_.synchronize(block.events.back());
      }
      runtime_.destroy_event(block.events.back());
      block.events.pop_back();
    }
    if (block.events.empty() && block.unrecorded.empty()) {
      block.segment->pool.free(block.block);
      waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
}

void Cache::record_stream(void* memory, Stream stream) {
  Place& place = places_.at(memory);
  if (stream != place.segment->stream &&
      std::find(place.users.begin(), place.users.end(), stream) == place.users.end()) {
    place.users.push_back(stream);
  }
}

void Cache::empty() {
  end_waiting(false);
  for (auto at = segments_.begin(); at != segments_.end();) {
    const Segment& segment = *at->second;
    if (segment.pool.used() > Bytes(0)) {
      ++at;
      continue;
    }
    reserved_ -= segment.pool.capacity();
    char* const base = segment.base;
    at = segments_.erase(at);
    runtime_.release(device_, base);
  }
}

std::vector<Cache::SegmentView> Cache::segments() const {
  std::vector<SegmentView> views;
  for (const auto& [base, segment] : segments_) {
    SegmentView& view = views.emplace_back();
    view.base = base;
    view.size = segment->pool.capacity();
    const Pool& pool = segment->pool;
    for (BlockId id = pool.first(); id.valid(); id = pool.next(id)) {
      if (!pool.view(id).free) {
        view.in_use.push_back(base + pool.offset(id).count());
      }
    }
  }
  return views;
}

void Cache::check() const {
  Bytes reserved{0};
  Bytes held{0};
  for (const auto& [base, segment] : segments_) {
    RECOUP_CHECK(segment->base == base);
    segment->pool.check();
    reserved += segment->pool.capacity();
    held += segment->pool.used();
  }
  RECOUP_CHECK(reserved == reserved_);
  Bytes placed{0};
  for (const auto& [memory, place] : places_) {
    const Pool& pool = place.segment->pool;
    RECOUP_CHECK(memory == place.segment->base + pool.offset(place.block).count());
    placed += pool.size(place.block);
  }
  RECOUP_CHECK(placed == used_);
  for (const Waiting& block : waiting_) {
    RECOUP_CHECK(!block.events.empty() || !block.unrecorded.empty());
    placed += block.segment->pool.size(block.block);
  }
  RECOUP_CHECK(placed == held, "blocks of ", held.count(), " bytes, on record ", placed.count());
}

}  // namespace recoup::detail::cuda
