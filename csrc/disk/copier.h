// Copier: copies between memory and a file on its own thread, through buffers.
#pragma once

#include <boost/heap/d_ary_heap.hpp>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "csrc/disk/block_io.h"

namespace recoup::detail {

// One checksum per kBuffer bytes of a copy.
using Checksums = std::vector<std::uint64_t>;

// Note [Buffers]
// Direct I/O needs addresses, offsets and sizes in whole blocks of the disk. So copies go through
// buffers, and no byte outside the value is accessed. While one part of a copy is transferred to or
// from the disk, other parts are copied and checksummed. The disk accesses only the buffers: the
// memory of a copy that never ends can be reused after the copy has timed out. A forked child does
// not inherit the buffers, so the disk writes into the pages of this process.
//
// Copies are processed in the order in which they were started. A copy that a caller waits for
// takes precedence.
class Copier {
 public:
  static constexpr std::int64_t kBlock = 4096;  // block size of the disk
  static constexpr std::int64_t kBuffer = std::int64_t{1} << 20;
  static constexpr int kBuffers = 4;
  using Patience = std::chrono::milliseconds;

  struct Result {
    enum class Kind : std::uint8_t {
      kDone,
      kFailed,     // `error` has the reason
      kTooShort,   // the file is shorter than expected
      kDifferent,  // the checksums differ
      kTimedOut,   // no progress for the time given as `patience`
    };
    Kind kind = Kind::kDone;
    int error = 0;
    Checksums sums;  // checksums of what was written
  };

  // Throws std::bad_alloc, std::system_error.
  Copier(int file, std::unique_ptr<BlockIo> io, Patience patience);
  // Waits for running operations, unless a copy has timed out.
  ~Copier();
  Copier(const Copier&) = delete;
  Copier& operator=(const Copier&) = delete;

  // Offsets in the file are multiples of kBlock, with at most one copy at a time per offset.
  void begin_write(std::int64_t to, const void* from, std::int64_t size);
  void begin_read(void* to, std::int64_t from, std::int64_t size, Checksums expected);
  // Waits for the copy at that offset.
  [[nodiscard]] Result end(std::int64_t place);
  // Whether a copy has timed out: the disk may still be working on it, so the file must stay open.
  [[nodiscard]] bool stuck() const;
  // For a forked child, which does not have the thread: leaks what the thread holds.
  void abandon() noexcept;

  // Checksums of a copy of these bytes.
  [[nodiscard]] static Checksums sums_of(const void* bytes, std::int64_t size);

 private:
  struct Request;
  struct Later {
    bool operator()(const Request* a, const Request* b) const;
  };
  using Queue = boost::heap::d_ary_heap<Request*, boost::heap::arity<4>,
                                        boost::heap::mutable_<true>, boost::heap::compare<Later>>;
  struct Part;
  struct State;

  void begin(std::unique_ptr<Request> request);

  // Shared with the thread. It outlives the Copier if a copy never ended.
  std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace recoup::detail
