// The vocabulary of recoup: terms, ids and units. Start reading here.
//
// Memory:
//   storage             The unit of memory: the bytes that a tensor and its views share.
//   allocation          A request for bytes, or the block that was allocated for it.
//   pool                The address range of `budget` bytes from which tensors are allocated.
//   block               A contiguous range of the pool, either free or allocated.
//   workspace           Bytes that a kernel holds while it runs, in addition to its results.
//   external storage    A storage whose bytes lie outside the pool.
//   overflow memory     Memory outside the pool that a kernel gets for what does not fit in it.
//   budget              The most bytes that may be charged at one time.
//   charge              To count bytes against the budget.
//   fragmentation       The state in which enough bytes are free, but not in one block.
//   move                To copy a block to another offset of the pool.
//   compaction          Several moves that together make one larger free block.
//   immovable block     A block whose address is in use: it is pinned, escaped, or a kernel's.
//   spill tier          Memory in addition to the budget: a file, or for a GPU the host's memory.
//   async copy          A copy to or from the spill tier that runs while ops run.
//   metadata            Memory of recoup's own records of ops, values and storages.
//   overhead            Time that a run spends in addition to the program's own ops.
//
// What is recorded:
//   op                  One recorded call: it reads values, makes values, and has a measured cost.
//   value               The content of a storage between two writes; a write makes the next
//                       version.
//   lineage             The graph of ops and values: all that is needed to replay an op.
//   source              Short for non-recomputable value: a value that no recorded op can make
//                       again.
//   dependents          The values that were computed from a value, directly or indirectly.
//   opaque op           An op whose kernel is not ATen's own; the ops that it calls are recorded.
//
// States of a value:
//   resident            It has bytes.
//   evicted             It has no bytes; a replay can restore it.
//   spilled             It has no bytes in the pool; the spill tier holds a copy.
//   lost                It has no bytes and cannot be restored; no live value needs it.
//   live                A storage of the program holds it.
//   dead                No storage holds it; its record stays while a replay may read it.
//   escaped             Code that recoup does not see has its address: it stays in place until it
//                       dies.
//   frozen              It is a source only because a source that it was computed from has changed.
//   kept                A schedule keeps its bytes, even if no live value needs them.
//   pinned              It must stay resident. A soft pin, which a waiting replay holds, may be
//                       broken.
//   fixed               It must not move: a kernel or a pin uses its address.
//   candidate           A value that the policy may evict now.
//   victim              A candidate that the policy has chosen for eviction.
//
// What is done to a value:
//   evict               To free its bytes; it can be restored later.
//   spill               To write its bytes to the spill tier and then free them.
//   fetch               To read its bytes back from the spill tier.
//   drop                To free the bytes of a dead value that no replay needs.
//   replay              To run recorded ops again to restore values; also: rematerialize.
//   pin                 To keep it resident until the pin is released.
//   escape              To give its address to code that recoup does not see.
//   freeze              To make the dependents of a source independent of it before it changes.
//   collect             To end a value that is not needed any more: its bytes and its record are
//                       freed.
//   disown              To stop managing bytes that other code has shared or replaced.
//
// A run:
//   scope               The part of a program during which a budget is in force.
//   session             The engine of one scope on one device, and all that belongs to it.
//   live run            A run of a real program, as opposed to a simulation.
//   trace               A recording of a run: the program's requests in order, without decisions.
//   simulation          A run of the engine on a trace, without memory or kernels.
//   schedule, plan      A precomputed list of what a training step keeps or evicts.
//   next-use predictor  The part that predicts when a value is used again, from earlier equal
//                       steps.
//   observer            An object that receives what the program does and what the engine decides.
//   caller              The code that calls the function at hand.
//   owner               The value that a block belongs to, or the object that must free a resource.
//   thread              A thread of the program; ops of threads that carry the scope are recorded.
#pragma once

#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>

#include "recoup/api.h"

namespace recoup {

// A typed index into a table of records. Ids with different tags cannot be mixed, and there is no
// arithmetic on them. A default-constructed id is invalid: it refers to no record.
template <class Tag>
class Id {
 public:
  // Makes an invalid id.
  constexpr Id() = default;
  // Makes the id of the record at `index`.
  constexpr explicit Id(std::uint32_t index) : index_(index) {}

  // The index in the table; meaningless if the id is invalid.
  [[nodiscard]] constexpr std::uint32_t index() const { return index_; }
  // Whether the id refers to a record.
  [[nodiscard]] constexpr bool valid() const { return index_ != kNone; }
  friend constexpr auto operator<=>(Id, Id) = default;
  friend constexpr bool operator==(Id, Id) = default;  // nvcc needs it declared

 private:
  static constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
  std::uint32_t index_ = kNone;
};

// Ids of records of the engine. An id may be reused after its record is gone.
using ValueId = Id<struct ValueTag>;
using OpId = Id<struct OpTag>;            // of an op, like ValueId
using StorageId = Id<struct StorageTag>;  // of a storage, like ValueId
using BlockId = Id<struct BlockTag>;      // of a block, like ValueId
// Id of a segment of memory that another allocator has from the driver. The device numbers them.
using SegmentId = Id<struct SegmentTag>;
// Id of the op call that memory and time are attributed to: an index into Attribution::makers. The
// engine only stores it. Invalid if none is known.
using MakerId = Id<struct MakerTag>;
// Id of the name that the program gives a storage: an index into a table of the caller. Invalid if
// the storage has no name.
using NameId = Id<struct NameTag>;
// Id of a line of the program: an index into a table of the caller. Invalid if it is not known.
using LineId = Id<struct LineTag>;

// What a user forbids for a storage.
enum class StorageRule : std::uint8_t {
  kStays,    // it is not evicted
  kOffTier,  // it is not written to the spill tier
};
// Number of rules.
inline constexpr int kStorageRules = 2;

// A number of bytes: 64 bits, signed so that a difference is exact. Interfaces use it instead of a
// bare integer. Overflow is not checked: it needs 2^63 bytes.
class Bytes {
 public:
  // Zero bytes.
  constexpr Bytes() = default;
  // The given number of bytes.
  constexpr explicit Bytes(std::int64_t count) : count_(count) {}

  // The number as a plain integer.
  [[nodiscard]] constexpr std::int64_t count() const { return count_; }
  constexpr Bytes& operator+=(Bytes other) {
    count_ += other.count_;
    return *this;
  }
  constexpr Bytes& operator-=(Bytes other) {
    count_ -= other.count_;
    return *this;
  }
  friend constexpr Bytes operator+(Bytes a, Bytes b) { return a += b; }
  friend constexpr Bytes operator-(Bytes a, Bytes b) { return a -= b; }
  friend constexpr Bytes operator-(Bytes a) { return Bytes(0) - a; }
  friend constexpr auto operator<=>(Bytes, Bytes) = default;
  friend constexpr bool operator==(Bytes, Bytes) = default;

 private:
  std::int64_t count_ = 0;
};

// Literals for byte counts, such as 4_GiB.
inline namespace literals {
constexpr Bytes operator""_B(unsigned long long n) { return Bytes(static_cast<std::int64_t>(n)); }
constexpr Bytes operator""_KiB(unsigned long long n) {
  return Bytes(static_cast<std::int64_t>(n) * 1024);
}
constexpr Bytes operator""_MiB(unsigned long long n) {
  return Bytes(static_cast<std::int64_t>(n) * 1024 * 1024);
}
constexpr Bytes operator""_GiB(unsigned long long n) {
  return Bytes(static_cast<std::int64_t>(n) * 1024 * 1024 * 1024);
}
}  // namespace literals

// "1,536 bytes (1.5 KiB)": the exact number and a rounded one.
RECOUP_API std::string to_string(Bytes bytes);

// Offset of a block from the start of its pool, in bytes.
using PoolOffset = Bytes;

// The unit of all times and costs.
using Nanoseconds = std::chrono::nanoseconds;

// A time on the engine's logical clock, in nanoseconds. The clock starts at 0 when the engine is
// made and advances by the cost of each op, so a pause of the program ages no value.
using Tick = std::int64_t;

}  // namespace recoup

template <class Tag>
struct std::hash<recoup::Id<Tag>> {
  std::size_t operator()(recoup::Id<Tag> id) const noexcept { return id.index(); }
};
