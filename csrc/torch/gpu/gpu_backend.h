// GpuBackend: a device beneath a session whose work runs later, on streams.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <boost/icl/interval_set.hpp>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <vector>

#include "csrc/cuda/move.h"
#include "csrc/cuda/runtime.h"
#include "csrc/cuda/stream_order.h"
#include "csrc/torch/backend/backend.h"
#include "csrc/torch/gpu/gpu_tier.h"
#include "csrc/torch/gpu/kept_copies.h"
#include "csrc/torch/gpu/op_times.h"

namespace recoup::detail {

// Gpus has its driver and PyTorch's allocator.
class GpuBackend final : public Backend {
 public:
  // Throws std::runtime_error, with a remedy, if there is no such device or another allocator.
  explicit GpuBackend(c10::Device device);
  ~GpuBackend() override;

  [[nodiscard]] StorageHooks complete(StorageHooks hooks) const override;
  [[nodiscard]] std::unique_ptr<MemoryRoute> make_route(ProgramMemory& memory,
                                                        const Arena& arena) override;

  // ---- the budget ----
  [[nodiscard]] Options adjust(Options options) const override;
  // Rounds down to a multiple of the unit in which the driver allocates memory. Throws
  // std::invalid_argument if it is less than one unit.
  [[nodiscard]] Bytes budget(Bytes wanted) const override;
  // Reserves addresses for all of the device's memory, and backs what the budget leaves with
  // memory.
  [[nodiscard]] std::unique_ptr<Arena> make_arena(const Options& options) override;
  void back(Arena& arena, Bytes size) override;
  void require_can_shrink() const override;
  [[nodiscard]] std::optional<TraceDevice> traced_as(const Options& options) const override;

  // ---- memory outside of the budget ----
  [[nodiscard]] bool is_outside(const c10::DataPtr& data) const override;
  void adopt(c10::StorageImpl& storage) override;
  [[nodiscard]] std::vector<OutsideSegment> outside_segments() const override;
  void wait_for_outside() override;
  [[nodiscard]] Bytes take_returned(Arena& arena, Bytes before, Bytes in_pool, Bytes most) override;

  // ---- the spill tier: pinned host memory ----
  void open_tier(const Options& options) override;
  [[nodiscard]] TierStore* tier() override { return tier_.get(); }

  // ---- copies ----
  // An error of CUDA is thrown by the next require_ready().
  void copy(void* to, const void* from, Bytes size) noexcept override;
  // For a move whose ranges overlap.
  [[nodiscard]] double move_ns_per_byte() override;
  void set_bounce(void* memory, Bytes size) override { bounce_ = {.memory = memory, .size = size}; }
  // Of all bytes. The host waits for them.
  [[nodiscard]] std::uint64_t hash(
      const void* memory, Bytes size,
      c10::function_ref<std::uint64_t(const void* memory)> of_defined) override;
  [[nodiscard]] void* keep_copy(const void* memory, std::size_t size) override;
  void drop_copy(void* copy) noexcept override;
  void put_back(void* memory, const void* copy, std::size_t size) noexcept override;

  // ---- streams ----
  [[nodiscard]] cuda::Stream stream() const override { return current_stream(guard_, device_); }
  // Throws std::runtime_error if the op's work would become part of a CUDA graph, or rethrows a
  // CUDA failure that occurred where the engine could not get it.
  void require_ready(cuda::Stream stream) const override;
  void use(const void* memory, Bytes size) override { use(memory, size, stream()); }
  void use(const void* memory, Bytes size, cuda::Stream stream) override;
  void take(const void* memory, Bytes size) override { take(memory, size, stream()); }
  void take(const void* memory, Bytes size, cuda::Stream stream) override;
  void read_external(void* memory, Bytes size) override;
  void wait_for_all() noexcept override;
  void begin_capture() override;
  [[nodiscard]] bool in_capture(cuda::Stream stream) const override {
    return capturing_ && runtime_->capturing(stream);
  }
  [[nodiscard]] std::vector<AddressRange> end_capture() override;
  [[nodiscard]] OpTimes* times() override { return &times_; }

  void check() const override;

 private:
  void learn_deleter();
  void note_access(const void* memory, Bytes size);
  // PyTorch's allocator returns its unused segments to the driver.
  void empty_outside_cache() const;
  // Bytes that the driver has given on the device for tensors outside of its open budget, after
  // PyTorch's allocator has returned its unused segments.
  [[nodiscard]] Bytes outside() const;
  // The unit in bytes in which the driver allocates memory.
  [[nodiscard]] Bytes budget_unit() const;

  c10::Device device_;
  cuda::Runtime* runtime_;
  c10::impl::VirtualGuardImpl guard_;
  std::unique_ptr<GpuTier> tier_;  // null: none; outlives order_, which uses its streams
  cuda::StreamOrder order_;
  cuda::Bounce bounce_;
  bool capturing_ = false;
  boost::icl::interval_set<std::uintptr_t> accessed_;  // addresses, since begin_capture
  mutable KeptCopies copies_;
  c10::DeleterFnPtr program_deleter_ = nullptr;
  std::exception_ptr failure_;
  OpTimes times_;
};

}  // namespace recoup::detail
