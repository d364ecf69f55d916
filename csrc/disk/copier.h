// Copier: copies between memory and a file on a thread of its own, through buffers.
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

// One checksum for each kBuffer bytes of a copy.
using Checksums = std::vector<std::uint64_t>;

// Note [Buffers]
// Direct copies want addresses, places and sizes in whole blocks of the disk. So they go through
// buffers, and touch no byte beside those of the value. While one part of a copy is on its way to
// the disk or from it, others are copied and summed. The disk knows the buffers alone: memory of a
// copy that never ends can be used again when the copy is given up. A forked child does not get
// them, so the disk writes into this process's pages.
//
// Copies are worked off in the order in which they were begun; one that somebody waits for goes
// first.
class Copier {
 public:
  static constexpr std::int64_t kBlock = 4096;  // of the disk
  static constexpr std::int64_t kBuffer = std::int64_t{1} << 20;
  static constexpr int kBuffers = 4;
  using Patience = std::chrono::milliseconds;

  struct Result {
    enum class Kind : std::uint8_t {
      kDone,
      kFailed,     // `error` says why
      kTooShort,   // the file ends before
      kDifferent,  // not what was written
      kTimedOut,   // nothing has moved for as long as the copier has patience
    };
    Kind kind = Kind::kDone;
    int error = 0;
    Checksums sums;  // of what was written
  };

  // Throws std::bad_alloc, std::system_error.
  Copier(int file, std::unique_ptr<BlockIo> io, Patience patience);
  // Waits for what the disk is at, unless a copy has timed out.
  ~Copier();
  Copier(const Copier&) = delete;
  Copier& operator=(const Copier&) = delete;

  // Places are in whole blocks; one copy at a time for each.
  void begin_write(std::int64_t to, const void* from, std::int64_t size);
  void begin_read(void* to, std::int64_t from, std::int64_t size, Checksums expected);
  // Waits for the copy of that place.
  [[nodiscard]] Result end(std::int64_t place);
  // A copy has timed out: the disk may be at it still, so the file must stay open.
  [[nodiscard]] bool stuck() const;
  // In a forked child: the thread is not here, and what it holds is left alone.
  void abandon() noexcept;

  // What a copy of these bytes would have.
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

  // The thread's too. It outlives this where a copy never ended.
  std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace recoup::detail
