// What copies between a device and pinned memory of the host take.
#pragma once

#include "csrc/cuda/runtime.h"

namespace recoup::detail::cuda {

struct LinkSpeed {
  double out_ns_per_byte = 0.08;  // 12.5 GB/s: half of what PCIe 4.0 with 16 lanes carries
  double in_ns_per_byte = 0.08;
  double copy_ns = 10'000;  // of a short one
};

// Measured now, by copies to and from `size` bytes of pinned memory, in device time. What it says
// by default where the device has no memory for that.
[[nodiscard]] LinkSpeed measure_link(Runtime& runtime, int device, void* pinned, Bytes size);

}  // namespace recoup::detail::cuda
