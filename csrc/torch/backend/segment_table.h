// SegmentTable: the segments of PyTorch's allocator that hold storages from before a scope.
#pragma once

#include <functional>
#include <map>
#include <vector>

#include "csrc/cuda/outside_segment.h"
#include "csrc/engine/base/op.h"
#include "recoup/types.h"

namespace recoup::detail {

// Note [Segments]. Called under the engine's lock.
class SegmentTable {
 public:
  // Sets where the allocator's segments are.
  void set(const std::vector<OutsideSegment>& segments);
  // The segment in which an allocation begins; invalid: none. A segment gets the next id when it is
  // first found.
  [[nodiscard]] SegmentId find(const void* memory);
  // The number of ids given.
  [[nodiscard]] std::uint32_t count() const { return count_; }
  // The segments with an id whose returnable bytes differ from the last answer. `in_segment` tells
  // whether the allocation at this address is that of a storage which the engine has placed in a
  // segment.
  [[nodiscard]] std::vector<SegmentChange> changes(
      const std::vector<OutsideSegment>& now,
      const std::function<bool(const void* memory)>& in_segment);

 private:
  struct Segment {
    Bytes extent;
    Bytes size;
    SegmentId id{};  // invalid: not found yet
    Bytes returnable{0};
  };
  std::map<const void*, Segment> segments_;  // by their base
  std::uint32_t count_ = 0;
};

}  // namespace recoup::detail
