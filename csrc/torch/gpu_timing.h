// The time of one op on a GPU, which is known after the op's call has returned.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "csrc/engine/engine.h"
#include "csrc/engine/op.h"
#include "csrc/torch/gpu.h"
#include "csrc/torch/traits.h"

namespace recoup::detail {

// Called under the engine's lock. On the CPU nothing is called.
class GpuTiming {
 public:
  // Others that are done by now tell their time; then this one begins.
  void begin(Gpu& gpu, Engine& engine);
  // The same op is tried again.
  void begin_again(Gpu& gpu);
  void cancel(Gpu& gpu);
  // What the op costs, as far as that is known. `made_room`: room was made during the op, so that
  // its time says nothing. `must_know`: the host waits for it.
  [[nodiscard]] Nanoseconds end(Gpu& gpu, const OpTraits& traits, std::span<const Operand> operands,
                                std::span<const FreshStorage> fresh, bool made_room,
                                bool must_know);
  // Whose time it is: what the op made, or wrote.
  void name(Gpu& gpu, const Engine& engine, std::span<const Operand> operands,
            std::span<const StorageId> fresh);

 private:
  std::optional<Gpu::Begun> begun_;
  std::optional<cuda::OpClock::Token> token_;  // none: it will not be known better
  std::uint64_t kind_ = 0;
  Nanoseconds estimate_{0};
};

}  // namespace recoup::detail
