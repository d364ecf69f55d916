// What a session on a GPU needs in addition: work runs later, on streams.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>

#include "csrc/cuda/move.h"
#include "csrc/cuda/op_clock.h"
#include "csrc/cuda/runtime.h"
#include "csrc/cuda/stream_order.h"
#include "csrc/cuda/timing_sample.h"
#include "csrc/engine/base/cost_memory.h"
#include "csrc/engine/program/engine.h"
#include "csrc/torch/gpu/arena.h"
#include "csrc/torch/gpu/gpu_tier.h"
#include "csrc/torch/gpu/outside_memory.h"

namespace recoup::detail {

// An op whose cost will be measured later.
struct TimedOp {
  ValueTicket made;  // one of its results; none if all are non-recomputable
  std::uint64_t kind = 0;
  Nanoseconds estimate{0};
};

// All methods but the const ones must be called under the session's lock.
class Gpu {
 public:
  // Throws std::runtime_error, with a remedy, if there is no driver, no such device or another
  // allocator.
  explicit Gpu(c10::Device device);
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  // The unit in bytes in which the driver allocates memory.
  [[nodiscard]] Bytes budget_unit() const;
  // The budget rounded down to a multiple of that unit. Throws std::invalid_argument if it is less
  // than one unit.
  [[nodiscard]] Bytes budget(Bytes wanted) const;
  // Bytes that the driver has given on the device for tensors outside of its open budget.
  [[nodiscard]] Bytes outside() const;
  // Reserves addresses for all of the device's memory, and backs the first `size` bytes with
  // memory. Throws std::runtime_error if the device does not have that much.
  [[nodiscard]] std::unique_ptr<Arena> make_arena(Bytes size);
  // Backs the first `size` bytes of the arena with memory; throws the same.
  void back(Arena& arena, Bytes size);

  // The segments of PyTorch's allocator and of earlier scopes on the device. Empty if they are
  // unknown, or if code may hold addresses in them.
  [[nodiscard]] std::vector<cuda::Segment> outside_segments() const;
  // A storage made outside of the scope that grows inside of it will grow in the budget.
  static void adopt(c10::StorageImpl& storage);

  // The deleter of memory from PyTorch's allocator on this device.
  [[nodiscard]] c10::DeleterFnPtr program_deleter() const { return program_deleter_; }

  // The calling thread's current stream on the device.
  [[nodiscard]] cuda::Stream stream() const;
  // To be called before an op of the program. Throws std::runtime_error if the op's work would
  // become part of a CUDA graph, or rethrows a CUDA failure that occurred where the engine could
  // not get it.
  void require_ready() const;
  // See StreamOrder.
  void use(const void* memory, Bytes size) { use(memory, size, stream()); }
  void use(const void* memory, Bytes size, cuda::Stream stream);
  void take(const void* memory, Bytes size) { take(memory, size, stream()); }
  void take(const void* memory, Bytes size, cuda::Stream stream);
  // A replay reads memory outside of the arena. Its owner may free it before the replay has run.
  void read_external(void* memory, Bytes size);

  // The host waits for all work on the device, also that of streams which the scope does not know.
  // Memory outside of the budget may be freed next.
  void wait_for_device();
  // PyTorch's allocator returns its unused segments to the driver, and up to `most` bytes of what
  // has been returned since wait_for_device() are added to the arena, which has `backed` bytes.
  // Returns how many.
  [[nodiscard]] Bytes take_returned(Arena& arena, Bytes backed, Bytes most);
  // The host waits for all streams of the scope: after it, no record tells which stream used what.
  void wait_for_all() noexcept;

  // Memory of the arena through which moves copy; set once, before the first move.
  void set_bounce(void* memory, Bytes size) { bounce_ = {.memory = memory, .size = size}; }
  // Copies into the arena; the ranges may overlap. An error of CUDA is thrown by the next
  // require_ready().
  void copy(void* to, const void* from, Bytes size) noexcept;
  // Opens the spill tier, in pinned host memory. Call it at most once. `size`: capacity in bytes.
  void open_tier(Bytes size);
  // Null before open_tier().
  [[nodiscard]] TierStore* tier() { return tier_.get(); }

  // Copies memory to outside of the budget, on the calling thread's stream. Null if there is no
  // memory or nothing to copy; put_back() then does nothing.
  [[nodiscard]] void* keep_copy(const void* memory, std::size_t size);
  static void drop_copy(void* copy) noexcept;
  void put_back(void* memory, const void* copy, std::size_t size) noexcept;
  // The host waits for the bytes.
  [[nodiscard]] std::uint64_t hash(const void* memory, Bytes size);
  // Time in nanoseconds per byte of a move within the device whose ranges overlap. Measured once
  // per process and device.
  [[nodiscard]] double move_ns_per_byte();

  // ---- the time of ops ----
  struct Begun {
    cuda::Stream stream;
    cuda::Event event;
  };
  [[nodiscard]] Begun begin_op();
  void cancel_op(const Begun& begun) { clock_.cancel(begun.event); }
  struct Estimate {
    Nanoseconds cost{0};
    bool measured = false;  // by earlier ops of the kind; otherwise a roofline estimate
  };
  [[nodiscard]] Estimate estimate(std::uint64_t kind, Bytes moved, double flops) const;
  // See TimingSample.
  [[nodiscard]] bool in_sample(std::uint64_t kind) { return sample_->count(kind); }
  void time_next(std::uint64_t kind) { sample_->time_next(kind); }
  // To be called when the op was enqueued on its stream. resolve() reports its cost for what
  // name_op() has registered.
  [[nodiscard]] cuda::OpClock::Token end_op(const Begun& begun) noexcept;
  void name_op(cuda::OpClock::Token token, const TimedOp& op) { timed_[token] = op; }
  // The host waits until the op is done.
  [[nodiscard]] Nanoseconds time_now(const Begun& begun);
  // Reports the costs that are known by now to the engine. Acts once in several calls, since a
  // query costs as much as an event.
  void resolve_now_and_then(Engine& engine);

  void check() const;

 private:
  void learn_deleter();
  void resolve(Engine& engine);

  c10::Device device_;
  cuda::Runtime* runtime_;
  c10::impl::VirtualGuardImpl guard_;
  std::unique_ptr<GpuTier> tier_;  // null: none; outlives order_, which uses its streams
  cuda::StreamOrder order_;
  cuda::OpClock clock_;
  std::unique_ptr<cuda::TimingSample> sample_ = std::make_unique<cuda::TimingSample>();
  cuda::Bounce bounce_;
  c10::DeleterFnPtr program_deleter_ = nullptr;
  std::exception_ptr failure_;
  Bytes outside_before_{0};  // bytes outside of the budget at the last wait_for_device()
  std::unordered_map<cuda::OpClock::Token, TimedOp> timed_;
  cuda::OpClock::Token last_token_ = 0;
  int until_resolve_ = 0;
  CostMemory costs_;  // by kind of op
};

}  // namespace recoup::detail
