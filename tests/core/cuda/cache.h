// The caching allocator of the test device for memory outside of budgets.
//
//   small    up to 1 MiB       cut from segments of 2 MiB
//   large    up to 10 MiB      cut from segments of 20 MiB
//   huge     above             a segment of its own, rounded up to 2 MiB
//
// A segment belongs to one stream. It is returned to the device on a shortage or by empty(). Its
// blocks are reused on that stream only, so that stream order suffices. PyTorch's allocator does
// the same, and programs rely on it. A block that other streams have used is free once they have
// finished.
#pragma once

#include <boost/container/flat_map.hpp>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "csrc/cuda/runtime.h"
#include "csrc/pool/pool.h"

namespace recoup::detail::cuda {

// Not thread safe: the owner must hold a lock. A method that throws CudaError has changed nothing.
class Cache {
 public:
  // An allocator for one device. `runtime` must outlive it.
  Cache(Runtime& runtime, int device);
  ~Cache();
  Cache(const Cache&) = delete;
  Cache& operator=(const Cache&) = delete;

  enum class Shortage : std::uint8_t {
    kMakeRoom,  // wait for other streams that use freed blocks, and return unused segments
    kFail,
  };
  // Returns at least `size` (> 0) bytes, aligned to 512, for work on `stream`. Returns null if the
  // device has no more memory after the action for a shortage.
  [[nodiscard]] void* allocate(Bytes size, Stream stream, Shortage shortage = Shortage::kMakeRoom);
  // Whether `memory` is in use and was allocated here.
  [[nodiscard]] bool owns(const void* memory) const;
  // Frees memory for which owns() is true. Work that uses it may still be running.
  void free(void* memory);
  // Registers that work on another stream uses memory for which owns() is true.
  void record_stream(void* memory, Stream stream);
  // Returns segments without used blocks to the device.
  void empty();

  struct SegmentView {
    const void* base;
    Bytes size;
    std::vector<const void*> in_use;  // addresses of blocks that are not free, in order
  };
  [[nodiscard]] std::vector<SegmentView> segments() const;
  [[nodiscard]] Bytes reserved() const { return reserved_; }
  // Without freed blocks that other streams still use.
  [[nodiscard]] Bytes used() const { return used_; }
  // Recounts everything. Throws InternalError on a difference.
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
    std::vector<Stream> users;  // other streams that use it
  };
  // A freed block with work of other streams that may not have finished.
  struct Waiting {
    Segment* segment;
    BlockId block;
    std::vector<Stream> unrecorded;  // streams that were being captured
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
  // By address, so that low segments fill up and high ones become empty.
  boost::container::flat_map<char*, std::unique_ptr<Segment>> segments_;
  std::unordered_map<const void*, Place> places_;  // blocks in use
  std::deque<Waiting> waiting_;                    // in the order of free()
  Bytes reserved_{0};
  Bytes used_{0};
};

}  // namespace recoup::detail::cuda
