#include "csrc/paging/access_patterns.h"

#include <algorithm>
#include <cstdlib>

namespace recoup::detail {

void AccessPatterns::reset(std::int64_t block) {
  streams_ = {};
  block_ = block;
}

AccessPatterns::Prediction AccessPatterns::miss(const Source& source, std::int64_t offset,
                                                const Limits& limits) {
  ++misses_;
  Stream& stream = find(source, offset);
  if (is_expected(stream, offset)) {
    stream.depth = std::clamp<std::int64_t>(stream.depth * kGrowth, kGrowth,
                                            std::max(limits.at_once, kGrowth));
  } else if (is_next(stream, offset)) {
    // The neighboring block is the next one of a sequence, whatever the offset in it is.
    stream.stride = (offset / block_ - stream.last / block_) * block_;
    stream.depth = 1;
  }
  stream.used = misses_;
  stream.last = offset;
  const std::int64_t count = std::min({stream.depth, limits.at_once, limits.together / active()});
  stream.expected = offset + (count + 1) * stream.stride;
  return {.stride = stream.stride, .count = count};
}

// The stream to which a miss belongs, or a new one.
AccessPatterns::Stream& AccessPatterns::find(const Source& source, std::int64_t offset) {
  Stream* oldest = streams_.data();
  Stream* latest = nullptr;  // of this source
  Stream* neighbor = nullptr;
  for (Stream& stream : streams_) {
    oldest = stream.used < oldest->used ? &stream : oldest;
    // A stream that was never confirmed is soon forgotten: many of them would match by chance.
    if (stream.used == 0 || stream.source != source || (stream.depth == 0 && !is_recent(stream))) {
      continue;
    }
    if (is_expected(stream, offset)) {
      return stream;
    }
    neighbor = is_next(stream, offset) ? &stream : neighbor;
    latest = latest == nullptr || stream.used > latest->used ? &stream : latest;
  }
  if (neighbor != nullptr) {
    return *neighbor;
  }
  // A kernel often goes on with the same stride at another place. A stride that is not confirmed
  // yet may be the distance from the miss before this one.
  std::int64_t stride = 0;
  if (latest != nullptr) {
    stride = latest->depth > 0 ? latest->stride : offset - latest->last;
  }
  *oldest = {.source = source, .last = offset, .stride = stride};
  return *oldest;
}

bool AccessPatterns::is_expected(const Stream& stream, std::int64_t offset) const {
  return stream.used != 0 && stream.stride != 0 && std::llabs(offset - stream.expected) < block_;
}

bool AccessPatterns::is_next(const Stream& stream, std::int64_t offset) const {
  return std::llabs(offset / block_ - stream.last / block_) == 1;
}

std::int64_t AccessPatterns::active() const {
  return std::max<std::int64_t>(
      std::count_if(streams_.begin(), streams_.end(),
                    [this](const Stream& stream) { return stream.depth > 0 && is_recent(stream); }),
      1);
}

}  // namespace recoup::detail
