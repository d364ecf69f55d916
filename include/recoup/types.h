// The vocabulary of recoup: ids, units and states. Start reading here.
//
//   storage    the unit of memory; views share it
//   value      the content of a storage between two writes; a write makes the next version
//   op         one recorded call: reads values, writes values, has a measured cost
//   lineage    the graph of ops and values; all that is needed to replay
//   non-recomputable value       a value with no lineage; never evicted by recompute
//
// What a value is:
//   resident   has bytes
//   evicted    has none, but can be replayed
//   spilled    has none; the spill tier keeps them
//   lost       has none, cannot be replayed, and nobody needs it
//   dead       no storage holds it; it is kept while something may be replayed from it
//   escaped    somebody outside holds its address: it stays where it is until it dies
//   frozen     a non-recomputable value only because what it was made from has changed
//   kept       has bytes because a schedule wants them, whether somebody needs them or not
//   pinned     may not be evicted: hard, or soft while an op waits for others to be replayed
//   fixed      may not move: a kernel, or whoever pinned it, knows its address
//
// What is done to it:
//   evict      take its bytes, for room or because the user says so
//   spill      write its bytes to the spill tier, and take them
//   fetch      get them back from there
//   drop       take its bytes because nobody needs them
//   replay     run the ops again that made it (also: rematerialize)
//   move       to another place in the pool
//   freeze     cut what was made from a non-recomputable value from it, before the non-recomputable
//   value changes settle     find out whether somebody still needs it, and end it otherwise disown
//   give up control of bytes that somebody else has got hold of
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

// A typed index into one table of records. Distinct tags do not mix and there is no arithmetic.
// A default-constructed id refers to nothing.
template <class Tag>
class Id {
 public:
  constexpr Id() = default;
  constexpr explicit Id(std::uint32_t index) : index_(index) {}

  [[nodiscard]] constexpr std::uint32_t index() const { return index_; }
  [[nodiscard]] constexpr bool valid() const { return index_ != kNone; }
  friend constexpr auto operator<=>(Id, Id) = default;
  friend constexpr bool operator==(Id, Id) = default;  // nvcc wants it said

 private:
  static constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
  std::uint32_t index_ = kNone;
};

using ValueId = Id<struct ValueTag>;
using OpId = Id<struct OpTag>;
using StorageId = Id<struct StorageTag>;
using BlockId = Id<struct BlockTag>;
// Whoever runs ops says on whose behalf; to the engine it is a number. None: nobody said.
using MakerId = Id<struct MakerTag>;
// Of what the program calls a storage, into a table of its own; the same.
using NameId = Id<struct NameTag>;

// A number of bytes. 64 bits, signed so that a difference is exact; never a bare integer in an
// interface. Overflow cannot happen below 2^63 bytes and is not checked for.
class Bytes {
 public:
  constexpr Bytes() = default;
  constexpr explicit Bytes(std::int64_t count) : count_(count) {}

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
  friend constexpr auto operator<=>(Bytes, Bytes) = default;
  friend constexpr bool operator==(Bytes, Bytes) = default;

 private:
  std::int64_t count_ = 0;
};

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

// "1,536 bytes (1.5 KiB)": both the exact number and one a person can read.
RECOUP_API std::string to_string(Bytes bytes);

// The distance of a block from the start of its pool, in bytes.
using PoolOffset = Bytes;

using Nanoseconds = std::chrono::nanoseconds;

// A point on the engine's logical clock, which advances by the cost of each op: nanoseconds of op
// time since the engine was made, not wall time. A pause of the program ages nothing.
using Tick = std::int64_t;

}  // namespace recoup

template <class Tag>
struct std::hash<recoup::Id<Tag>> {
  std::size_t operator()(recoup::Id<Tag> id) const noexcept { return id.index(); }
};
