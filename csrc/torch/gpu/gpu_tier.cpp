#include "csrc/torch/gpu/gpu_tier.h"

#include <cstdint>

#include "csrc/torch/gpu/gpus.h"

namespace recoup::detail {

cuda::Range range_at(const void* memory, Bytes size) {
  return {.offset = Bytes(reinterpret_cast<std::int64_t>(memory)), .size = size};
}

void GpuTier::begin_write(Bytes to, const void* from, Bytes size) {
  tier_.begin_write(order_, to, range_at(from, size), from);
}

void GpuTier::begin_read(void* to, Bytes from, Bytes size) {
  tier_.begin_read(order_, range_at(to, size), to, from);
}

std::optional<TierSpeed> GpuTier::speed() {
  const cuda::LinkSpeed speed =
      gpus()
          .link_speeds()
          .get({device_, tier_.measured_size()}, [this] { return tier_.measure(); })
          .value_or(cuda::LinkSpeed());
  return TierSpeed{.write_ns_per_byte = speed.out_ns_per_byte,
                   .read_ns_per_byte = speed.in_ns_per_byte,
                   .each = Nanoseconds(static_cast<std::int64_t>(speed.copy_ns))};
}

}  // namespace recoup::detail
