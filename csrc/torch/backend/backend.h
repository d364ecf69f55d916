// Backend: the device beneath a session: its memory, copies, streams, spill tier and allocator.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/FunctionRef.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <vector>

#include "csrc/base/address_map.h"
#include "csrc/base/check.h"
#include "csrc/cuda/outside_segment.h"
#include "csrc/cuda/runtime.h"
#include "csrc/engine/base/footprint.h"
#include "csrc/engine/base/tier_store.h"
#include "csrc/torch/backend/arena.h"
#include "csrc/torch/backend/memory_route.h"
#include "csrc/torch/backend/program_memory.h"
#include "csrc/torch/backend/storage_hooks.h"
#include "recoup/options.h"
#include "recoup/trace.h"

namespace recoup::detail {

class OpTimes;

// Differences between devices that other code must know, as it has no method to call.
struct Capabilities {
  // Ops run later than their calls, in the order of streams. Then Backend::times() is not null.
  // Otherwise the time of a call is that of its op.
  bool streams = false;
  // Note [Segments]: storages from before a scope are imported by segments of PyTorch's allocator.
  bool segments = false;
  // Note [Leaving the pool]: Backend::copy_out works.
  bool leaves_pool = false;
  // Copies that are kept while a kernel runs are in the pool; otherwise Backend::keep_copy has
  // them.
  bool copies_in_pool = false;
  // Moves go through a block of the pool that is reserved for them: Backend::set_bounce.
  bool bounces = false;
  // The program's allocator asks how much of the pool is in use.
  bool reports_use = false;
  // Kernels on lists of tensors check all tensors before they begin, and read scalars on the CPU.
  // Otherwise they take one tensor after another.
  bool fused_lists = false;
  // Another run of some kernels may give other bits: see OpTraits::varies_on_gpu.
  bool kernels_vary = false;
};

// All methods but the const ones must be called under the session's lock. By default, a method of
// a facility that a device lacks does nothing.
class Backend {
 public:
  explicit Backend(const Capabilities& capabilities) : capabilities_(capabilities) {}
  virtual ~Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  [[nodiscard]] const Capabilities& capabilities() const { return capabilities_; }
  // Sets the hooks `pool` and `program` to those of the device.
  [[nodiscard]] virtual StorageHooks complete(StorageHooks hooks) const = 0;
  // Where requests of the program for memory go. The arguments must outlive the route's close().
  [[nodiscard]] virtual std::unique_ptr<MemoryRoute> make_route(ProgramMemory& memory,
                                                                const Arena& arena) = 0;

  // ---- the budget ----
  // The options of a session on this device. Throws std::invalid_argument for options that the
  // device does not support.
  [[nodiscard]] virtual Options adjust(Options options) const = 0;
  // The budget, rounded down to a size that the device can give. Throws std::invalid_argument if it
  // is too small.
  [[nodiscard]] virtual Bytes budget(Bytes wanted) const { return wanted; }
  // The memory for a pool; also addresses for a larger budget. Throws std::runtime_error if the
  // device does not have that much memory, std::bad_alloc if there is no such range of addresses.
  [[nodiscard]] virtual std::unique_ptr<Arena> make_arena(const Options& options) = 0;
  // Gives memory to the first `size` bytes of the arena. Throws std::runtime_error if the device
  // does not have that much.
  virtual void back(Arena& /*arena*/, Bytes /*size*/) {}
  // Throws std::invalid_argument if a budget on this device cannot become smaller.
  virtual void require_can_shrink() const {}
  // See Device::page_sizes.
  [[nodiscard]] virtual PageSizes page_sizes() const { return {}; }
  // How a trace describes the device; nullopt: as a CPU. `bounces` is not set.
  [[nodiscard]] virtual std::optional<TraceDevice> traced_as(const Options& /*options*/) const {
    return std::nullopt;
  }

  // ---- memory outside of the budget ----
  // Whether the memory is among Options::outside.
  [[nodiscard]] virtual bool is_outside(const c10::DataPtr& /*data*/) const { return false; }
  // A storage made outside of the scope that grows inside of it will grow in the budget.
  virtual void adopt(c10::StorageImpl& /*storage*/) {}
  // The segments of PyTorch's allocator and of earlier scopes on the device. Empty if they are
  // unknown, or if code may hold addresses in them.
  [[nodiscard]] virtual std::vector<OutsideSegment> outside_segments() const { return {}; }
  // The host waits for all work on the device, also that of streams which the scope does not know.
  // Called after storages of a segment were copied. A scope with a tier also waits when it begins.
  // Throws if a copy has failed.
  virtual void wait_for_outside() {}
  // PyTorch's allocator returns its unused segments to the driver. If less is in use outside than
  // `outside`, up to `most` bytes of the difference are added to the arena, which has `in_pool`
  // bytes. Returns how many.
  [[nodiscard]] virtual Bytes take_returned(Arena& /*arena*/, Bytes /*outside*/, Bytes /*in_pool*/,
                                            Bytes most) {
    return most;
  }
  // A copy in memory of the host's allocator, whose owner frees it; null: there is no memory, or
  // bytes cannot leave the pool.
  [[nodiscard]] virtual void* copy_out(const void* /*memory*/, std::size_t /*size*/) noexcept {
    return nullptr;
  }

  // ---- the spill tier ----
  // Opens the tier of options.spill bytes, more than 0; call it at most once. Throws
  // std::invalid_argument for options that the device's tier does not support, and what the
  // tier's constructor throws.
  virtual void open_tier(const Options& options) = 0;
  // See Device::lend_tier.
  [[nodiscard]] virtual bool lend_tier() noexcept { return false; }
  // Null: none is open.
  [[nodiscard]] virtual TierStore* tier() = 0;

  // ---- copies ----
  // Copies into the arena; the ranges may overlap.
  virtual void copy(void* to, const void* from, Bytes size) noexcept = 0;
  // Time in nanoseconds per byte of a long copy within the device. Measured once per process and
  // device.
  [[nodiscard]] virtual double move_ns_per_byte() = 0;
  // Memory of the arena through which moves copy; set once, before the first move.
  virtual void set_bounce(void* /*memory*/, Bytes /*size*/) {}
  // A digest of the result of an op at `memory`. `of_defined` digests those of its bytes that the
  // op has defined; it is called only if the host can read them.
  [[nodiscard]] virtual std::uint64_t hash(
      const void* memory, Bytes size,
      c10::function_ref<std::uint64_t(const void* memory)> of_defined) = 0;
  // Copies memory to outside of the budget, after the work of the calling thread's stream. Null if
  // there is no memory or nothing to copy; put_back() then does nothing.
  [[nodiscard]] virtual void* keep_copy(const void* /*memory*/, std::size_t /*size*/) {
    return nullptr;
  }
  virtual void drop_copy(void* /*copy*/) noexcept {}
  virtual void put_back(void* memory, const void* copy, std::size_t size) noexcept {
    if (copy != nullptr) {
      std::memcpy(memory, copy, size);
    }
  }

  // ---- streams ----
  // The calling thread's stream.
  [[nodiscard]] virtual cuda::Stream stream() const { return {}; }
  // To be called before an op of the program on the stream. Throws std::runtime_error if the op
  // could not be replayed, or rethrows a failure that occurred where the engine could not get it.
  virtual void require_ready(cuda::Stream /*stream*/) const {}
  // Work of the program, on the calling thread's stream or the given one, will access the memory:
  // see StreamOrder.
  virtual void use(const void* /*memory*/, Bytes /*size*/) {}
  virtual void use(const void* /*memory*/, Bytes /*size*/, cuda::Stream /*stream*/) {}
  // The engine gives the memory away, or accesses it.
  virtual void take(const void* /*memory*/, Bytes /*size*/) {}
  virtual void take(const void* /*memory*/, Bytes /*size*/, cuda::Stream /*stream*/) {}
  // A replay reads memory outside of the arena. Its owner may free it before the replay has run.
  virtual void read_external(void* /*memory*/, Bytes /*size*/) {}
  // The host waits for all streams of the scope: after it, no record tells which stream used what.
  virtual void wait_for_all() noexcept {}
  // ---- captures: Note [Captured graphs] ----
  // The host waits for all work of the device. The calling thread's stream is captured next; its
  // work may become a part of the graph from now on, and its ops are not timed.
  virtual void begin_capture() { RECOUP_CHECK(false, "a device without streams has no graphs"); }
  // Whether the stream is being captured since begin_capture.
  [[nodiscard]] virtual bool in_capture(cuda::Stream /*stream*/) const { return false; }
  // The capture has ended. The host waits again. Returns the ranges of memory that ops and moves
  // have accessed since begin_capture, in the order of addresses.
  [[nodiscard]] virtual std::vector<AddressRange> end_capture() { return {}; }
  // The times of ops, which become known later; null without Capabilities::streams.
  [[nodiscard]] virtual OpTimes* times() { return nullptr; }

  // Recounts everything; throws InternalError on the first difference.
  virtual void check() const {}

 private:
  const Capabilities capabilities_;
};

}  // namespace recoup::detail
