// Settings of the simulated devices from the environment.
#pragma once

#include <cstddef>
#include <cstdint>

namespace recoup::stand_in {

// Sizes may have the suffix K, M or G. Each comment names the variable.
struct Settings {
  int devices = 1;                  // CUDA_STAND_IN_DEVICES
  std::size_t memory = 1ULL << 30;  // CUDA_STAND_IN_MEMORY: bytes per device
  std::size_t pinned = 4ULL << 30;  // CUDA_STAND_IN_PINNED: limit of pinned host memory in bytes
  bool synchronous = false;         // CUDA_STAND_IN_SYNCHRONOUS: work runs when it is enqueued
  bool host_only = false;           // CUDA_STAND_IN_HOST_ONLY: Note [Host only]
  std::uint64_t seed = 1;           // CUDA_STAND_IN_SEED: for the order of streams
  bool abort_at_faults = false;  // CUDA_STAND_IN_ABORT: abort at the first race or illegal access
  int log = 0;  // CUDA_STAND_IN_LOG: 1 logs failed calls, 2 launches too, 3 work too
};

[[nodiscard]] const Settings& settings();

}  // namespace recoup::stand_in
