// The state of the stand-in in a process, which the runtime and the driver share.
#pragma once

#include <atomic>
#include <cstddef>

#include "tests/cuda_stand_in/device/faults.h"
#include "tests/cuda_stand_in/device/launches.h"
#include "tests/cuda_stand_in/device/memory.h"
#include "tests/cuda_stand_in/device/settings.h"
#include "tests/cuda_stand_in/device/streams.h"

namespace recoup::stand_in {

struct Machine {
  Machine();

  Memory memory;
  Streams streams;
  Faults faults;
  CallSites sites;
  // A cudaError_t that all calls return after work has failed, or 0.
  std::atomic<int> failure = 0;
};

// Created by the first call. Never destroyed, because libraries call it during process exit.
[[nodiscard]] Machine& machine();
// Separate from the machine, because libraries register their kernels while they are loaded.
[[nodiscard]] Launches& launches();

// Reports that work on a stream has accessed unmapped memory.
void report_illegal_access(const char* what, const void* memory, std::size_t size);
// Returns whether the memory may be accessed; reports an illegal access if not.
[[nodiscard]] bool require_access(const char* what, const void* memory, std::size_t size);

// Installs a signal handler that explains segmentation faults before the process dies: the host
// accessed device addresses, or work on a stream accessed unmapped memory.
void explain_segmentation_faults();

}  // namespace recoup::stand_in
