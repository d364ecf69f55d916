// All that the stand-in has in a process: what the runtime and the driver share.
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
  // What all calls return once work has failed: a cudaError_t, or 0.
  std::atomic<int> failure = 0;
};

// Made at the first call; never destroyed, for libraries call while the process ends.
[[nodiscard]] Machine& machine();
// Apart from the machine: libraries register their kernels while they are loaded.
[[nodiscard]] Launches& launches();

// Work on a stream has used memory that is not mapped.
void report_illegal_access(const char* what, const void* memory, std::size_t size);
// True when the memory may be used; else it is reported.
[[nodiscard]] bool require_access(const char* what, const void* memory, std::size_t size);

// After this a fault of the host in the device's addresses, or of work in what is not mapped, says
// so before the process dies of it.
void explain_segmentation_faults();

}  // namespace recoup::stand_in
