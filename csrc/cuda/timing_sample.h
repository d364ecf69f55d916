// TimingSample: selects the ops on a device that are timed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace recoup::detail::cuda {

// Note [Sampled times]
// Two events around an op take about 4 us on the host, as much as the launch of a kernel, and leave
// the device idle for 1 to 3 us. Training runs ops of the same kinds repeatedly. So the first ops
// of a kind are timed, as many as the median of its cost needs. After that one op in kEach is
// timed, so that the cost follows changes.
//
// Kinds share a table of fixed size. A kind that replaces another one starts from the beginning.
class TimingSample {
 public:
  static constexpr std::uint32_t kFirst = 8;
  static constexpr std::uint32_t kEach = 64;
  static constexpr unsigned kPlaceBits = 12;
  static constexpr std::size_t kPlaces = std::size_t{1} << kPlaceBits;

  // Fibonacci hashing: kinds are hashes whose low bits differ little, because sizes are round
  // numbers.
  [[nodiscard]] static std::size_t place(std::uint64_t kind) {
    return (kind * 0x9e3779b97f4a7c15ULL) >> (64U - kPlaceBits);
  }
  // Counts an op of the kind. Returns whether it must be timed.
  [[nodiscard]] bool count(std::uint64_t kind);
  // Times the next op of the kind, because the measurement of the last one failed.
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
