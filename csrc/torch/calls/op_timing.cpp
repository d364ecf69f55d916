#include "csrc/torch/calls/op_timing.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "csrc/torch/calls/operands.h"

namespace recoup::detail {

void OpTiming::begin(OpTimes& times, Engine& engine, const OpTraits& traits,
                     std::span<const Operand> operands, bool must_know) {
  must_know_ = must_know;
  kind_ = reinterpret_cast<std::uintptr_t>(&traits);
  for (const Operand& operand : operands) {
    count(Bytes(static_cast<std::int64_t>(impl_of(operand).nbytes())));
  }
  kind_of_operands_ = kind_;
  if (engine.options().cost_model == CostModel::kMeasured && !times.paused()) {
    times.resolve_now_and_then(engine);
    if (times.in_sample(kind_of_operands_) || must_know) {
      begun_ = times.begin_op();
    }
  }
}

void OpTiming::begin_again(OpTimes& times) {
  if (begun_) {
    cancel(times);
    begun_ = times.begin_op();
  }
}

void OpTiming::cancel(OpTimes& times) {
  if (begun_) {
    times.cancel_op(*std::exchange(begun_, std::nullopt));
  }
}

void OpTiming::count(Bytes bytes) {
  kind_ = (kind_ ^ static_cast<std::uint64_t>(bytes.count())) * 0x100000001b3ULL;
  moved_ += bytes;
  product_ *= static_cast<double>(bytes.count()) / 4;
}

Nanoseconds OpTiming::end(OpTimes& times, const OpTraits& traits,
                          std::span<const FreshStorage> fresh, bool made_room) {
  for (const FreshStorage& each : fresh) {
    count(each.nbytes);
  }
  const OpTimes::Estimate estimate =
      times.estimate(kind_, moved_, traits.matrix_product ? 2 * std::sqrt(product_) : 0);
  estimate_ = estimate.cost;
  if (begun_ && made_room) {  // the time includes that of making room
    cancel(times);
  } else if (begun_) {
    const OpTimes::Begun begun = *std::exchange(begun_, std::nullopt);
    if (must_know_) {
      return times.time_now(begun);
    }
    token_ = times.end_op(begun);
    return estimate_;
  }
  if (!estimate.measured) {
    times.time_next(kind_of_operands_);
  }
  return estimate_;
}

void OpTiming::name(OpTimes& times, const Engine& engine, std::span<const Operand> operands,
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
  times.name_op(*token_, timed);
}

}  // namespace recoup::detail
