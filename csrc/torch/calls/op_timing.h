// OpTiming: the time of one op that runs on a stream. It becomes known after the op's call.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "csrc/engine/base/op.h"
#include "csrc/engine/program/engine.h"
#include "csrc/torch/gpu/op_times.h"
#include "csrc/torch/ops/traits.h"

namespace recoup::detail {

// All methods are called under the engine's lock. `times`: those of the session's backend.
class OpTiming {
 public:
  // Resolves the times of ops that are done by now. Then begins this op, which is timed if it is in
  // the sample. `must_know`: it is timed in any case, and the host will wait for its time.
  void begin(OpTimes& times, Engine& engine, const OpTraits& traits,
             std::span<const Operand> operands, bool must_know);
  // Restarts the timing, since the same op is tried again.
  void begin_again(OpTimes& times);
  void cancel(OpTimes& times);
  // The op's cost, as far as it is known. `made_room`: room was made during the op, so its measured
  // time is discarded.
  [[nodiscard]] Nanoseconds end(OpTimes& times, const OpTraits& traits,
                                std::span<const FreshStorage> fresh, bool made_room);
  // Assigns the time to a value that the op made or wrote.
  void name(OpTimes& times, const Engine& engine, std::span<const Operand> operands,
            std::span<const StorageId> fresh);

 private:
  // Adds the size of a storage to the op's kind and to its estimate.
  void count(Bytes bytes);

  std::optional<OpTimes::Begun> begun_;
  bool must_know_ = false;
  Bytes moved_{0};
  double product_ = 1;  // of the element counts of all storages, for a matrix product's flops
  std::uint64_t kind_of_operands_ = 0;
  std::optional<cuda::OpClock::Token> token_;  // none: the estimate is final
  std::uint64_t kind_ = 0;
  Nanoseconds estimate_{0};
};

}  // namespace recoup::detail
