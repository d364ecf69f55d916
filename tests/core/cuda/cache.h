// A caching allocator of device memory over the runtime, as the test device has outside of budgets.
//
//   small    up to 1 MiB       cut from segments of 2 MiB
//   large    up to 10 MiB      cut from segments of 20 MiB
//   huge     above             a segment of its own, rounded up to 2 MiB
//
// A segment is of one stream, and stays until the device has no more, or empty() is called. Its
// blocks are used again on that stream alone, whose own order is enough: as PyTorch's allocator
// does it, and programs rely on it. A block that other streams used too is free when they are done.
#pragma once

#include <boost/container/flat_map.hpp>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "csrc/cuda/runtime.h"
#include "csrc/pool/pool.h"

namespace recoup::detail::cuda {

// Not thread safe: its owner has a lock. When a method throws CudaError nothing has changed.
class Cache {
 public:
  // Of one device; the runtime must outlive it.
  Cache(Runtime& runtime, int device);
  ~Cache();
  Cache(const Cache&) = delete;
  Cache& operator=(const Cache&) = delete;

  enum class Shortage : std::uint8_t {
    kMakeRoom,  // the host waits for what other streams still use, and what is unused is given back
    kFail,
  };
  // At least `size` (> 0) bytes, aligned to 512, for work on `stream`. Null when the device has no
  // more, after what is done about that.
  [[nodiscard]] void* allocate(Bytes size, Stream stream, Shortage shortage = Shortage::kMakeRoom);
  // Whether it came from here and is in use.
  [[nodiscard]] bool owns(const void* memory) const;
  // What owns() it. Work that uses it may still be running.
  void free(void* memory);
  // Work on another stream uses what owns() it.
  void record_stream(void* memory, Stream stream);
  // Gives segments without a block in use back to the device.
  void empty();

  [[nodiscard]] Bytes reserved() const { return reserved_; }
  // Without what is freed and still in use by other streams.
  [[nodiscard]] Bytes used() const { return used_; }
  // Recounts everything; throws InternalError on the first difference.
  void check() const;

 private:
  enum class Kind : std::uint8_t { kSmall, kLarge, kHuge };
  struct Segment {
    Segment(Kind segment_kind, Stream owner, char* start, Bytes size);
    Kind kind;
    Stream stream;
    char* base;
    Pool pool;
  };
  struct Place {
    Segment* segment;
    BlockId block;
    std::vector<Stream> users;  // other streams
  };
  // Freed, with work of other streams that may not be done.
  struct Waiting {
    Segment* segment;
    BlockId block;
    std::vector<Stream> unrecorded;  // they were being captured
    std::vector<Event> events;
  };

  [[nodiscard]] static Kind kind_of(Bytes size);
  [[nodiscard]] Segment* segment_for(Bytes size, Kind kind, Stream stream);
  Segment* add_segment(Bytes size, Kind kind, Stream stream, Shortage shortage);
  void* device_memory(Bytes size, Shortage shortage);
  void record_users(Waiting& block);
  void end_waiting(bool wait);

  Runtime& runtime_;
  int device_;
  // By address, so that low ones fill up and high ones become empty.
  boost::container::flat_map<char*, std::unique_ptr<Segment>> segments_;
  std::unordered_map<const void*, Place> places_;  // in use
  std::deque<Waiting> waiting_;                    // the first freed first
  Bytes reserved_{0};
  Bytes used_{0};
};

}  // namespace recoup::detail::cuda
