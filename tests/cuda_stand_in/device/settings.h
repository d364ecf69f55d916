// What the environment says of the devices that do not exist.
#pragma once

#include <cstddef>
#include <cstdint>

namespace recoup::stand_in {

// Sizes may end in K, M or G. Each comment names the variable.
struct Settings {
  int devices = 1;                  // CUDA_STAND_IN_DEVICES
  std::size_t memory = 1ULL << 30;  // CUDA_STAND_IN_MEMORY: bytes of each device
  std::size_t pinned = 4ULL << 30;  // CUDA_STAND_IN_PINNED: bytes of the host that can be pinned
  bool synchronous = false;         // CUDA_STAND_IN_SYNCHRONOUS: work runs when it is given
  std::uint64_t seed = 1;           // CUDA_STAND_IN_SEED: of the order of streams
  bool abort_at_faults = false;     // CUDA_STAND_IN_ABORT: at the first race or illegal access
  int log = 0;  // CUDA_STAND_IN_LOG: 1 says failed calls, 2 launches too, 3 work too
};

[[nodiscard]] const Settings& settings();

}  // namespace recoup::stand_in
