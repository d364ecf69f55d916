// TimingSample: which ops on a device are timed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace recoup::detail::cuda {

// Note [Sampled times]
// Two events around an op take the host about 4 us, as much as the launch of a kernel, and leave
// the device idle for 1 to 3 us. Training runs ops of the same kinds again and again. So the first
// ops of a kind are timed, as many as its cost is the median of, and after that one op in kEach, by
// which a cost follows what changes.
//
// Kinds share a table of fixed size. A kind that takes the place of another one starts anew.
class TimingSample {
 public:
  static constexpr std::uint32_t kFirst = 8;
  static constexpr std::uint32_t kEach = 64;
  static constexpr unsigned kPlaceBits = 12;
  static constexpr std::size_t kPlaces = std::size_t{1} << kPlaceBits;

  // Fibonacci hashing: kinds are hashes whose low bits differ little, for sizes are round.
  [[nodiscard]] static std::size_t place(std::uint64_t kind) {
    return (kind * 0x9e3779b97f4a7c15ULL) >> (64U - kPlaceBits);
  }
  // Counts an op of the kind. Returns whether it is to be timed.
  [[nodiscard]] bool count(std::uint64_t kind);
  // The next op of the kind is timed: what the last one took is not known.
  void time_next(std::uint64_t kind) { place_of(kind) = {}; }

 private:
  struct Place {
    std::uint64_t kind = 0;
    std::uint32_t ops = 0;
  };
  [[nodiscard]] Place& place_of(std::uint64_t kind) { return places_[place(kind)]; }

  std::array<Place, kPlaces> places_{};
};

}  // namespace recoup::detail::cuda
