// GpuTier: the spill tier of a GPU, in pinned memory of the host.
#pragma once

#include <optional>

#include "csrc/cuda/host_tier.h"
#include "csrc/cuda/stream_order.h"
#include "csrc/engine/base/tier_store.h"

namespace recoup::detail {

// The address as a range of StreamOrder, which also covers memory outside of the arena.
[[nodiscard]] cuda::Range range_at(const void* memory, Bytes size);

// A HostTier whose copies are ordered with all other work of one session.
class GpuTier final : public TierStore {
 public:
  // A tier of at most `size` bytes. The arguments must outlive their last use by a copy. Throws
  // CudaError if no stream can be created.
  GpuTier(cuda::Runtime& runtime, int device, Bytes size, cuda::StreamOrder& order)
      : tier_(runtime, device, size), order_(order), device_(device) {}

  void begin_write(Bytes to, const void* from, Bytes size) override;
  [[nodiscard]] bool end_write(Bytes to) override { return tier_.end_write(to); }
  // Options::spill_compares is off.
  [[nodiscard]] bool holds(Bytes /*place*/, const void* /*bytes*/, Bytes /*size*/) const override {
    return true;
  }
  void begin_read(void* to, Bytes from, Bytes size) override;
  void end_read(Bytes from) override { tier_.end_read(from); }
  [[nodiscard]] std::optional<TierSpeed> speed() override;
  void check() const override { tier_.check(); }

 private:
  cuda::HostTier tier_;
  cuda::StreamOrder& order_;
  int device_;
};

}  // namespace recoup::detail
