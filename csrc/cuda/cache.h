// Device memory outside of every budget scope: a caching allocator over the runtime.
//
//   small    up to 1 MiB       cut from segments of 2 MiB
//   large    up to 10 MiB      cut from segments of 20 MiB
//   huge     above             a segment of its own, rounded up to 2 MiB
//
// A segment stays until the device has no more, or empty() is called. Reuse across streams waits on
// the device, never on the host: see Note [Stream order].
#pragma once

#include <boost/container/flat_map.hpp>
#include <memory>
#include <unordered_map>
#include <vector>

#include "csrc/cuda/runtime.h"
#include "csrc/cuda/stream_order.h"
#include "csrc/pool/pool.h"

namespace recoup::detail::cuda {

// Not thread safe: its owner has a lock.
class Cache {
 public:
  // Of one device; the runtime must outlive it.
  Cache(Runtime& runtime, int device);
  ~Cache();
  Cache(const Cache&) = delete;
  Cache& operator=(const Cache&) = delete;

  // At least `size` (> 0) bytes, aligned to 512, for work on `stream`. Null when the device has no
  // more, even after all that is unused was given back to it.
  [[nodiscard]] void* allocate(Bytes size, Stream stream);
  // Whether it came from here and is in use.
  [[nodiscard]] bool owns(const void* memory) const;
  // What owns() it. Work that uses it may still be running.
  void free(void* memory);
  // Work on another stream uses what owns() it.
  void record_stream(void* memory, Stream stream);
  // Gives segments without a block in use back to the device.
  void empty();

  [[nodiscard]] Bytes reserved() const { return reserved_; }
  [[nodiscard]] Bytes used() const { return used_; }
  // Recounts everything; throws InternalError on the first difference.
  void check() const;

 private:
  enum class Kind : std::uint8_t { kSmall, kLarge, kHuge };
  struct Segment {
    Segment(Runtime& runtime, int device, Kind segment_kind, char* start, Bytes size);
    Kind kind;
    char* base;
    Pool pool;
    StreamOrder order;
  };
  struct Place {
    Segment* segment;
    BlockId block;
  };

  [[nodiscard]] static Kind kind_of(Bytes size);
  [[nodiscard]] Segment* segment_for(Bytes size, Kind kind);
  Segment* add_segment(Bytes size, Kind kind);
  [[nodiscard]] static Range range_of(const Place& place);

  Runtime& runtime_;
  int device_;
  // By address, so that low ones fill up and high ones become empty.
  boost::container::flat_map<char*, std::unique_ptr<Segment>> segments_;
  std::unordered_map<const void*, Place> places_;  // in use
  Bytes reserved_{0};
  Bytes used_{0};
};

}  // namespace recoup::detail::cuda
