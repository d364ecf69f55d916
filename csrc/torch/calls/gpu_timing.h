// The time of one op on a GPU, which is known after the op's call has returned.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "csrc/engine/base/op.h"
#include "csrc/engine/program/engine.h"
#include "csrc/torch/gpu/gpu.h"
#include "csrc/torch/ops/traits.h"

namespace recoup::detail {

// Called under the engine's lock. On the CPU nothing is called.
class GpuTiming {
 public:
  // Other ops that are done by now tell their time. Then this op begins, which is timed if it is of
  // the sample. `must_know`: it is timed in any case, and the host will wait for it.
  void begin(Gpu& gpu, Engine& engine, const OpTraits& traits, std::span<const Operand> operands,
             bool must_know);
  // The same op is tried again.
  void begin_again(Gpu& gpu);
  void cancel(Gpu& gpu);
  // What the op costs, as far as that is known. `made_room`: room was made during the op, so that
  // its time says nothing.
  [[nodiscard]] Nanoseconds end(Gpu& gpu, const OpTraits& traits,
                                std::span<const FreshStorage> fresh, bool made_room);
  // Whose time it is: what the op made, or wrote.
  void name(Gpu& gpu, const Engine& engine, std::span<const Operand> operands,
            std::span<const StorageId> fresh);

 private:
  // An op is of the same kind as others with the same bytes.
  void count(Bytes bytes);

  std::optional<Gpu::Begun> begun_;
  bool must_know_ = false;
  Bytes moved_{0};
  double product_ = 1;  // of the elements of all that a matrix product has to do with
  std::uint64_t kind_of_operands_ = 0;
  std::optional<cuda::OpClock::Token> token_;  // none: it will not be known better
  std::uint64_t kind_ = 0;
  Nanoseconds estimate_{0};
};

}  // namespace recoup::detail
