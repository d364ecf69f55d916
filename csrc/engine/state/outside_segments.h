// OutsideSegments: the segments of another allocator among Options::outside, and the storages in
// them.
#pragma once

#include <unordered_map>

#include "recoup/types.h"

namespace recoup::detail {

// Note [Segments]
// On a GPU the memory of storages that were made before the scope belongs to PyTorch's allocator.
// It takes segments from the driver, cuts them into allocations, and returns a segment only when
// none of its allocations is left. So the engine imports all storages of a segment or none, and
// gains the bytes of the segment. That is possible if the engine knows the storage of each
// allocation in it; otherwise the segment has no returnable bytes. The device is asked for
// changes when the scope begins and when a step ends. They are part of a trace, so a simulation
// imports the same storages. If another thread allocates in a segment after that, the segment is
// imported and not returned: then the pool does not grow.
class OutsideSegments {
 public:
  // The storage of the record lies in the segment; invalid: in none.
  void place(const void* record, SegmentId segment) {
    if (segment.valid()) {
      segments_of_.insert_or_assign(record, segment);
    } else {
      segments_of_.erase(record);
    }
  }
  // Invalid: in none.
  [[nodiscard]] SegmentId of(const void* record) const {
    const auto found = segments_of_.find(record);
    return found == segments_of_.end() ? SegmentId() : found->second;
  }
  // Sets the bytes that the allocator returns when the registered storages have left the segment.
  void set_returnable(SegmentId segment, Bytes size) { returnable_[segment] = size; }
  [[nodiscard]] Bytes returnable(SegmentId segment) const {
    const auto found = returnable_.find(segment);
    return found == returnable_.end() ? Bytes(0) : found->second;
  }
  [[nodiscard]] bool empty() const { return segments_of_.empty(); }

 private:
  // By the device's record of the storage. An entry is replaced when its record is used again.
  std::unordered_map<const void*, SegmentId> segments_of_;
  std::unordered_map<SegmentId, Bytes> returnable_;  // 0 if absent
};

}  // namespace recoup::detail
