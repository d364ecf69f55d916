// HostTier: pinned memory of the host that holds copies of values: the spill tier of a GPU.
#pragma once

#include <array>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "csrc/cuda/host_copies.h"
#include "csrc/cuda/link_speed.h"
#include "csrc/cuda/runtime.h"
#include "csrc/cuda/stream_order.h"

namespace recoup::detail::cuda {

// Note [Copies in pinned memory]
// A copy is given to the stream of its direction, and the host goes on. What that needs:
//
//   program's stream   |write a|            |use block of a|        |use a|
//   out                        |a -> host|
//   in                                                     |host -> a|
//
// 1. The bytes on the device are ordered by StreamOrder: the copy waits for who touched them, and
//    who takes or uses them next waits for the copy. So a block may be given away when its copy has
//    been asked for.
// 2. A place on the host is used again, for a value of another size, while copies of what was there
//    may still be late. One direction is one stream, in order; a copy waits for those of the other
//    direction that touch its place and are not known to be done.
// 3. The end of a copy says whether it was given to its stream. What CUDA has accepted fails only
//    together with the whole device, and then every later call says so.
//
// What comes back from memory is what was put there, so nothing is summed, other than on a disk.

// Not thread safe.
class HostTier {
 public:
  // Memory is pinned in pieces, when a copy first needs one: to pin takes long, and most of a tier
  // may never be used.
  static constexpr Bytes kExtent{64 << 20};

  // Of `size` bytes at most. The runtime must outlive it, and it every order that has seen its
  // copies. Throws CudaError when there are no streams.
  HostTier(Runtime& runtime, int device, Bytes size, Bytes extent = kExtent);
  // Waits for all copies.
  ~HostTier();
  HostTier(const HostTier&) = delete;
  HostTier& operator=(const HostTier&) = delete;

  // Writes the range, which begins at `from`, to a place within the tier's size. Nobody changes the
  // bytes until it has ended, but who is ordered by `order`.
  void begin_write(StreamOrder& order, Bytes to, Range range, const void* from);
  // False: it cannot be written; what was there may be gone.
  [[nodiscard]] bool end_write(Bytes to);
  // Reads what was written there last, of the same size, into the range, which begins at `to`.
  void begin_read(StreamOrder& order, Range range, void* to, Bytes from);
  // Throws CudaError when it cannot be read.
  void end_read(Bytes from);

  // Measured now. What it says by default where there is no memory to do it.
  [[nodiscard]] LinkSpeed measure();
  // Of the host, so far; it stays until the end.
  [[nodiscard]] Bytes pinned() const { return pinned_; }
  // Recounts everything; throws InternalError on the first difference.
  void check() const;

 private:
  enum class Way : std::uint8_t { kOut, kIn };
  // Given to its stream, and not known to be done.
  struct Flying {
    Bytes begin;  // of its place
    Bytes end;
    HostCopies::Ticket ticket;
  };
  struct Lane {
    std::deque<Flying> flying;                                   // in order
    std::unordered_map<std::int64_t, std::exception_ptr> begun;  // by place; null: all is well
  };
  using Pinned = std::unique_ptr<void, std::function<void(void*)>>;

  [[nodiscard]] Lane& lane(Way way) { return lanes_.at(static_cast<std::size_t>(way)); }
  [[nodiscard]] Bytes extent_size(std::size_t index) const;
  [[nodiscard]] bool back(Bytes place, Bytes size);
  void copy(Way way, StreamOrder& order, Bytes place, Range range, char* bytes);
  void wait_for_other(Way way, Bytes begin, Bytes end);
  void release_done(Lane& lane);
  void forget(Bytes begin, Bytes end);
  void begin(Way way, Bytes place, const std::function<void()>& give);

  Runtime& runtime_;
  int device_;
  Bytes size_;
  Bytes extent_;
  Bytes pinned_{0};
  std::vector<Pinned> extents_;                   // null where nothing has been needed yet
  std::map<std::int64_t, std::int64_t> written_;  // bytes by place; they do not overlap
  HostCopies copies_;                             // before the memory goes, they are waited for
  std::array<Lane, 2> lanes_;                     // by way
};

}  // namespace recoup::detail::cuda
