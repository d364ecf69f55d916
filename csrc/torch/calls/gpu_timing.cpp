#include "csrc/torch/calls/gpu_timing.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "csrc/torch/calls/operands.h"

namespace recoup::detail {

void GpuTiming::begin(Gpu& gpu, Engine& engine, const OpTraits& traits,
                      std::span<const Operand> operands, bool must_know) {
  must_know_ = must_know;
  kind_ = reinterpret_cast<std::uintptr_t>(&traits);
  for (const Operand& operand : operands) {
    count(Bytes(static_cast<std::int64_t>(impl_of(operand).nbytes())));
  }
  kind_of_operands_ = kind_;
  if (engine.options().cost_model == CostModel::kMeasured) {
    gpu.resolve_now_and_then(engine);
    if (gpu.in_sample(kind_of_operands_) || must_know) {
      begun_ = gpu.begin_op();
    }
  }
}

void GpuTiming::begin_again(Gpu& gpu) {
  if (begun_) {
    cancel(gpu);
    begun_ = gpu.begin_op();
  }
}

void GpuTiming::cancel(Gpu& gpu) {
  if (begun_) {
    gpu.cancel_op(*std::exchange(begun_, std::nullopt));
  }
}

void GpuTiming::count(Bytes bytes) {
  kind_ = (kind_ ^ static_cast<std::uint64_t>(bytes.count())) * 0x100000001b3ULL;
  moved_ += bytes;
  product_ *= static_cast<double>(bytes.count()) / 4;
}

Nanoseconds GpuTiming::end(Gpu& gpu, const OpTraits& traits, std::span<const FreshStorage> fresh,
                           bool made_room) {
  for (const FreshStorage& each : fresh) {
    count(each.nbytes);
  }
  const Gpu::Estimate estimate =
      gpu.estimate(kind_, moved_, traits.matrix_product ? 2 * std::sqrt(product_) : 0);
  estimate_ = estimate.cost;
  if (begun_ && made_room) {  // the time includes that of making room
    cancel(gpu);
  } else if (begun_) {
    const Gpu::Begun begun = *std::exchange(begun_, std::nullopt);
    if (must_know_) {
      return gpu.time_now(begun);
    }
    token_ = gpu.end_op(begun);
    return estimate_;
  }
  if (!estimate.measured) {
    gpu.time_next(kind_of_operands_);
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
