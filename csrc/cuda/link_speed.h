// Speed of copies between a device and pinned memory of the host.
#pragma once

#include <optional>

#include "csrc/cuda/runtime.h"

namespace recoup::detail::cuda {

struct LinkSpeed {
  double out_ns_per_byte = 0.08;  // 12.5 GB/s: half of what PCIe 4.0 x16 carries
  double in_ns_per_byte = 0.08;
  double copy_ns = 10'000;  // time of a short copy
};

// Measures now, by copies to and from `size` bytes of pinned memory, in device time. Waits for all
// work on the device. Returns nullopt if the device has no memory for that.
[[nodiscard]] std::optional<LinkSpeed> measure_link(Runtime& runtime, int device, void* pinned,
                                                    Bytes size);

}  // namespace recoup::detail::cuda
