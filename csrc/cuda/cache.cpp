#include "csrc/cuda/cache.h"

#include <utility>

#include "csrc/base/check.h"

namespace recoup::detail::cuda {
namespace {

constexpr Bytes kAlignment{512};
constexpr Bytes kSmallest = 1_MiB;  // of a large block
constexpr Bytes kHuge = 10_MiB;     // above
constexpr Bytes kSmallSegment = 2_MiB;
constexpr Bytes kLargeSegment = 20_MiB;

Bytes round_up(Bytes size, Bytes to) {
  return Bytes((size.count() + to.count() - 1) / to.count() * to.count());
}

}  // namespace

Cache::Segment::Segment(Runtime& runtime, int device, Kind segment_kind, char* start, Bytes size)
    : kind(segment_kind),
      base(start),
      pool({.capacity = size, .alignment = kAlignment}),
      order(runtime, device) {}

Cache::Cache(Runtime& runtime, int device) : runtime_(runtime), device_(device) {}

Cache::~Cache() {
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

// The one whose largest free block is the smallest that is large enough.
Cache::Segment* Cache::segment_for(Bytes size, Kind kind) {
  Segment* best = nullptr;
  for (const auto& [base, segment] : segments_) {
    const Bytes room = segment->pool.largest_free();
    // A huge block may leave at most a fifth of its segment: it stays whole.
    const bool wastes = kind == Kind::kHuge && room > size + Bytes(size.count() / 4);
    if (segment->kind == kind && room >= size && !wastes &&
        (best == nullptr || room < best->pool.largest_free())) {
      best = segment.get();
    }
  }
  return best;
}

Cache::Segment* Cache::add_segment(Bytes size, Kind kind) {
  const Bytes whole = kind == Kind::kSmall   ? kSmallSegment
                      : kind == Kind::kLarge ? kLargeSegment
                                             : round_up(size, kSmallSegment);
  void* memory = runtime_.allocate(device_, whole);
  if (memory == nullptr) {
    empty();
    memory = runtime_.allocate(device_, whole);
  }
  if (memory == nullptr) {
    return nullptr;
  }
  auto* const base = static_cast<char*>(memory);
  reserved_ += whole;
  return segments_.emplace(base, std::make_unique<Segment>(runtime_, device_, kind, base, whole))
      .first->second.get();
}

void* Cache::allocate(Bytes wanted, Stream stream) {
  RECOUP_CHECK(wanted > Bytes(0));
  const Bytes size = round_up(wanted, kAlignment);
  const Kind kind = kind_of(size);
  Segment* segment = segment_for(size, kind);
  if (segment == nullptr) {
    segment = add_segment(size, kind);
  }
  if (segment == nullptr) {
    return nullptr;
  }
  const auto block = segment->pool.allocate(size, Zone::kLow);
  RECOUP_CHECK(block.has_value());
  const Place place{segment, *block};
  const Range range = range_of(place);
  segment->order.take(range, stream);
  used_ += range.size;
  void* const memory = segment->base + range.offset.count();
  places_.emplace(memory, place);
  return memory;
}

Range Cache::range_of(const Place& place) {
  return {.offset = place.segment->pool.offset(place.block),
          .size = place.segment->pool.size(place.block)};
}

bool Cache::owns(const void* memory) const { return places_.contains(memory); }

void Cache::free(void* memory) {
  const auto found = places_.find(memory);
  RECOUP_CHECK(found != places_.end(), "freed what was never allocated");
  const Place place = found->second;
  places_.erase(found);
  used_ -= place.segment->pool.size(place.block);
  place.segment->pool.free(place.block);
}

void Cache::record_stream(void* memory, Stream stream) {
  const Place& place = places_.at(memory);
  place.segment->order.use(range_of(place), stream);
}

void Cache::empty() {
  for (auto at = segments_.begin(); at != segments_.end();) {
    Segment& segment = *at->second;
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

void Cache::check() const {
  Bytes reserved{0};
  Bytes used{0};
  for (const auto& [base, segment] : segments_) {
    RECOUP_CHECK(segment->base == base);
    segment->pool.check();
    segment->order.check();
    reserved += segment->pool.capacity();
    used += segment->pool.used();
  }
  RECOUP_CHECK(reserved == reserved_ && used == used_);
  Bytes placed{0};
  for (const auto& [memory, place] : places_) {
    const Range range = range_of(place);
    RECOUP_CHECK(memory == place.segment->base + range.offset.count());
    placed += range.size;
  }
  RECOUP_CHECK(placed == used_);
}

}  // namespace recoup::detail::cuda
