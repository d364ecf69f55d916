// HostTier: pinned memory of the host that holds copies of values: the spill tier of a GPU.
#pragma once

#include <array>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "csrc/cuda/host_copies.h"
#include "csrc/cuda/link_speed.h"
#include "csrc/cuda/runtime.h"
#include "csrc/cuda/stream_order.h"

namespace recoup::detail::cuda {

// Note [Copies in pinned memory]
// A copy is given to the stream of its direction, and the host goes on. This requires:
//
//   program's stream   |write a|            |use block of a|        |use a|
//   out                        |a -> host|
//   in                                                     |host -> a|
//
// 1. StreamOrder orders accesses to the bytes on the device: the copy waits for earlier users, and
//    later users wait for the copy. So a block may be given away as soon as its copy has been
//    started.
// 2. A place on the host may be reused, for a value of another size, while copies of its previous
//    content are still running. Each direction has one stream, which is ordered. A copy also waits
//    for the last copy of the other direction that touches its place and is not known to be done.
// 3. Ending a copy only reports whether it was accepted by its stream. An accepted copy fails only
//    together with the whole device, and then every later call fails as well.
//
// Unlike copies on a disk, copies in memory are not checksummed.

// Not thread safe.
class HostTier {
 public:
  // Memory is pinned in extents of this size when a copy first needs one: pinning is slow, and most
  // of a tier may never be used.
  static constexpr Bytes kExtent{64 << 20};

  // A tier of at most `size` bytes. The runtime must outlive this object. All methods are passed
  // the same StreamOrder, which this object must outlive. Throws CudaError if no stream can be
  // created.
  HostTier(Runtime& runtime, int device, Bytes size, Bytes extent = kExtent);
  // Waits for all copies.
  ~HostTier();
  HostTier(const HostTier&) = delete;
  HostTier& operator=(const HostTier&) = delete;

  // Starts to write the range, which begins at `from`, to a place within the tier's size. Until the
  // copy has ended, only users that are ordered by `order` may change the bytes.
  void begin_write(StreamOrder& order, Bytes to, Range range, const void* from);
  // False: the write failed; the previous content of the place may be lost.
  [[nodiscard]] bool end_write(Bytes to);
  // Starts to read what was last written there, of the same size, into the range, which begins at
  // `to`.
  void begin_read(StreamOrder& order, Range range, void* to, Bytes from);
  // Throws CudaError if the read failed.
  void end_read(Bytes from);

  // Measures the speed now: see measure_link(). Returns nullopt if there is no memory for the
  // measurement.
  [[nodiscard]] std::optional<LinkSpeed> measure();
  // Bytes of each long copy of the measurement.
  [[nodiscard]] Bytes measured_size() const;
  // Host memory that is pinned so far; it stays pinned until the end.
  [[nodiscard]] Bytes pinned() const { return pinned_; }
  // Verifies all counts; throws InternalError on the first difference.
  void check() const;

 private:
  enum class Way : std::uint8_t { kOut, kIn };
  // A copy that was given to its stream and is not known to be done.
  struct PendingCopy {
    Bytes begin;  // start of its place
    Bytes end;
    HostCopies::Ticket ticket;
  };
  struct Lane {
    std::deque<PendingCopy> pending;                             // in order
    std::unordered_map<std::int64_t, std::exception_ptr> begun;  // by place; null: no error
  };
  using Pinned = std::unique_ptr<void, std::function<void(void*)>>;

  [[nodiscard]] Lane& lane(Way way) { return lanes_.at(static_cast<std::size_t>(way)); }
  [[nodiscard]] Bytes extent_size(std::size_t index) const;
  [[nodiscard]] bool back(Bytes place, Bytes size);
  void copy(Way way, StreamOrder& order, Bytes place, Range range, char* bytes);
  void wait_for_other(StreamOrder& order, Way way, Bytes begin, Bytes end);
  void release_done(StreamOrder& order, Lane& lane);
  void forget(Bytes begin, Bytes end);
  void begin(Way way, Bytes place, const std::function<void()>& give);

  Runtime& runtime_;
  int device_;
  Bytes size_;
  Bytes extent_;
  Bytes pinned_{0};
  std::vector<Pinned> extents_;                   // null until first needed
  std::map<std::int64_t, std::int64_t> written_;  // bytes by place, without overlaps
  HostCopies copies_;          // destroyed before the memory: it waits for its copies
  std::array<Lane, 2> lanes_;  // by direction
};

}  // namespace recoup::detail::cuda
