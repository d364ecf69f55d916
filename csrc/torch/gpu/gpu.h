// What a session on a GPU has beside what every session has: work runs there later, on streams.
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

#include "csrc/cuda/host_tier.h"
#include "csrc/cuda/move.h"
#include "csrc/cuda/op_clock.h"
#include "csrc/cuda/runtime.h"
#include "csrc/cuda/stream_order.h"
#include "csrc/cuda/timing_sample.h"
#include "csrc/engine/base/cost_memory.h"
#include "csrc/engine/base/tier.h"
#include "csrc/engine/program/engine.h"
#include "csrc/torch/gpu/arena.h"

namespace recoup::detail {

// An op whose time will be known later.
struct TimedOp {
  ValueTicket made;  // one of its results; of none: it made leaves
  std::uint64_t kind = 0;
  Nanoseconds estimate{0};
};

// Called under the session's lock, but for what is const.
class Gpu {
 public:
  // Throws std::runtime_error that says what to do: no driver, no such device, another allocator.
  explicit Gpu(c10::Device device);
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  // The unit in which the driver gives memory.
  [[nodiscard]] Bytes budget_unit() const;
  // The budget rounded down to a multiple of that unit. Throws std::invalid_argument when it is
  // less than one unit.
  [[nodiscard]] Bytes budget(Bytes wanted) const;
  // What the driver has given for tensors outside of any budget on the device.
  [[nodiscard]] Bytes outside() const;
  // Addresses for all of the device's memory, and memory behind the first `size` bytes. Throws
  // std::runtime_error when the device has not so much.
  [[nodiscard]] std::unique_ptr<Arena> make_arena(Bytes size);
  // Memory behind more of them; the same.
  void back(Arena& arena, Bytes size);

  // A storage from outside that grows inside of the scope grows in the budget.
  static void adopt(c10::StorageImpl& storage);

  // The deleter of what PyTorch's allocator gives on this device.
  [[nodiscard]] c10::DeleterFnPtr program_deleter() const { return program_deleter_; }

  // The stream on which the calling thread's work goes.
  [[nodiscard]] cuda::Stream stream() const;
  // An op of the program is about to begin: throws std::runtime_error when its work would become
  // part of a CUDA graph, or CUDA has failed where the engine could not be told.
  void require_ready() const;
  // See StreamOrder.
  void use(const void* memory, Bytes size) { use(memory, size, stream()); }
  void use(const void* memory, Bytes size, cuda::Stream stream);
  void take(const void* memory, Bytes size) { take(memory, size, stream()); }
  void take(const void* memory, Bytes size, cuda::Stream stream);
  // A replay reads memory from outside of the arena, which its owner may free before it has run.
  void read_external(void* memory, Bytes size);

  // The host waits for all streams of the scope: behind it nobody knows any more who touched what.
  void wait_for_all() noexcept;

  // Memory of the arena that moves go through; given once, before the first move.
  void set_bounce(void* memory, Bytes size) { bounce_ = {.memory = memory, .size = size}; }
  // Copies into the arena; the ranges may overlap. What CUDA refuses is thrown by the next
  // require_ready().
  void copy(void* to, const void* from, Bytes size) noexcept;
  // ---- its spill tier: pinned memory of the host; see Device ----
  // Once, of so many bytes at most, before the rest of this group.
  void open_tier(Bytes size);
  void begin_spill(Bytes to, const void* from, Bytes size);
  [[nodiscard]] bool end_spill(Bytes to) { return tier_->end_write(to); }
  void begin_fetch(void* to, Bytes from, Bytes size);
  void end_fetch(Bytes from) { tier_->end_read(from); }
  [[nodiscard]] TierSpeed tier_speed() const;

  // A copy outside of the budget, for the calling thread's stream; null when there is no memory or
  // nothing to copy, and then it cannot be put back.
  [[nodiscard]] void* keep_copy(const void* memory, std::size_t size);
  static void drop_copy(void* copy) noexcept;
  void put_back(void* memory, const void* copy, std::size_t size) noexcept;
  // The host waits for the bytes.
  [[nodiscard]] std::uint64_t hash(const void* memory, Bytes size);
  // Nanoseconds a byte, of a move within the device that overlaps itself. Measured once a process.
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
    bool measured = false;  // an op of this kind was; else a roofline says so
  };
  [[nodiscard]] Estimate estimate(std::uint64_t kind, Bytes moved, double flops) const;
  // See TimingSample.
  [[nodiscard]] bool in_sample(std::uint64_t kind) { return sample_->count(kind); }
  void time_next(std::uint64_t kind) { sample_->time_next(kind); }
  // It has been given to its stream; resolve() tells what name_op() says of it.
  [[nodiscard]] cuda::OpClock::Token end_op(const Begun& begun) noexcept;
  void name_op(cuda::OpClock::Token token, const TimedOp& op) { timed_[token] = op; }
  // The host waits until the op is done.
  [[nodiscard]] Nanoseconds time_now(const Begun& begun);
  // Tells the engine what is known by now; once in a few calls, for asking costs as much as an
  // event.
  void resolve_now_and_then(Engine& engine);

  void check() const;

 private:
  void learn_deleter();
  void resolve(Engine& engine);

  c10::Device device_;
  cuda::Runtime* runtime_;
  c10::impl::VirtualGuardImpl guard_;
  std::unique_ptr<cuda::HostTier> tier_;  // null: there is none; the order knows its streams
  cuda::StreamOrder order_;
  cuda::OpClock clock_;
  std::unique_ptr<cuda::TimingSample> sample_ = std::make_unique<cuda::TimingSample>();
  cuda::Bounce bounce_;
  c10::DeleterFnPtr program_deleter_ = nullptr;
  std::exception_ptr failure_;
  std::unordered_map<cuda::OpClock::Token, TimedOp> timed_;
  cuda::OpClock::Token last_token_ = 0;
  int until_resolve_ = 0;
  CostMemory costs_;  // by kind
};

}  // namespace recoup::detail
