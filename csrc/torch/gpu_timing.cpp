#include "csrc/torch/gpu_timing.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "csrc/torch/operands.h"

namespace recoup::detail {

void GpuTiming::begin(Gpu& gpu, Engine& engine) {
  if (engine.options().cost_model == CostModel::kMeasured) {
    gpu.resolve_now_and_then(engine);
    begun_ = gpu.begin_op();
  }
}

void GpuTiming::begin_again(Gpu& gpu) {
  cancel(gpu);
  begun_ = gpu.begin_op();
}

void GpuTiming::cancel(Gpu& gpu) {
  if (begun_) {
    gpu.cancel_op(*std::exchange(begun_, std::nullopt));
  }
}

Nanoseconds GpuTiming::end(Gpu& gpu, const OpTraits& traits, std::span<const Operand> operands,
                           std::span<const FreshStorage> fresh, bool made_room, bool must_know) {
  std::uint64_t kind = reinterpret_cast<std::uintptr_t>(&traits);
  Bytes moved{0};
  double product = 1;  // of the elements of all that a matrix product has to do with
  const auto count = [&](Bytes bytes) {
    kind = (kind ^ static_cast<std::uint64_t>(bytes.count())) * 0x100000001b3ULL;
    moved += bytes;
    product *= static_cast<double>(bytes.count()) / 4;
  };
  for (const Operand& operand : operands) {
    count(Bytes(static_cast<std::int64_t>(impl_of(operand).nbytes())));
  }
  for (const FreshStorage& each : fresh) {
    count(each.nbytes);
  }
  kind_ = kind;
  estimate_ = gpu.estimate(kind, moved, traits.matrix_product ? 2 * std::sqrt(product) : 0);
  if (begun_ && made_room) {  // with the time of what was done for that
    cancel(gpu);
  } else if (begun_) {
    const Gpu::Begun begun = *std::exchange(begun_, std::nullopt);
    if (must_know) {
      return gpu.time_now(begun);
    }
    token_ = gpu.end_op(begun);
  }
  return estimate_;
}

void GpuTiming::name(Gpu& gpu, const Engine& engine, std::span<const Operand> operands,
                     std::span<const StorageId> fresh) {
  if (!token_) {
    return;
  }
  TimedOp timed{.made = {}, .kind = kind_, .estimate = estimate_};
  const auto look_at = [&](StorageId storage) {
    if (storage.valid() && !timed.made.value.valid()) {
      timed.made = engine.values().ticket(engine.current(storage));
    }
  };
  std::for_each(fresh.begin(), fresh.end(), look_at);
  for (const Operand& operand : operands) {
    if (operand.written) {
      look_at(operand.storage);
    }
  }
  gpu.name_op(*token_, timed);
}

}  // namespace recoup::detail
