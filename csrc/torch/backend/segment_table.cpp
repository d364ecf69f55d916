#include "csrc/torch/backend/segment_table.h"

#include <algorithm>
#include <iterator>

namespace recoup::detail {

void SegmentTable::set(const std::vector<OutsideSegment>& segments) {
  segments_.clear();
  for (const OutsideSegment& segment : segments) {
    segments_.emplace(segment.base, Segment{.extent = segment.extent, .size = segment.size});
  }
}

SegmentId SegmentTable::find(const void* memory) {
  const auto after = segments_.upper_bound(memory);
  if (after == segments_.begin()) {
    return {};
  }
  auto& [base, segment] = *std::prev(after);
  if (memory >= static_cast<const char*>(base) + segment.extent.count()) {
    return {};
  }
  if (!segment.id.valid()) {
    segment.id = SegmentId(count_++);
  }
  return segment.id;
}

std::vector<SegmentChange> SegmentTable::changes(
    const std::vector<OutsideSegment>& now,
    const std::function<bool(const void* memory)>& in_segment) {
  std::map<const void*, Bytes> returnable;
  for (const OutsideSegment& segment : now) {
    const bool all = std::all_of(segment.in_use.begin(), segment.in_use.end(), in_segment);
    returnable[segment.base] = all ? segment.size : Bytes(0);
  }
  std::vector<SegmentChange> changes;
  for (auto& [base, segment] : segments_) {
    const auto found = returnable.find(base);
    const Bytes bytes =
        found == returnable.end() ? Bytes(0) : std::min(found->second, segment.size);
    if (segment.id.valid() && bytes != segment.returnable) {
      segment.returnable = bytes;
      changes.push_back({.segment = segment.id, .returnable = bytes});
    }
  }
  return changes;
}

}  // namespace recoup::detail
