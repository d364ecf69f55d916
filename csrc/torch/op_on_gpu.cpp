// What an op on a GPU needs besides: its place in the order of streams, and its time.
#include <algorithm>
#include <cmath>
#include <utility>

#include "csrc/torch/op_call.h"

namespace recoup::detail {

// What it takes is there before it begins.
void OpCall::order_on_gpu(Gpu& gpu) {
  for (const Operand& operand : operands_) {
    if (operand.storage.valid()) {
      gpu.use(impl_of(operand)._mutable_data_ptr_no_checks().get(),
              Bytes(static_cast<std::int64_t>(impl_of(operand).nbytes())));
    }
  }
}

// It is timed, and others that are done by now tell their time.
void OpCall::begin_on_gpu(Gpu& gpu, const Session::Lock& lock) {
  Engine& engine = session_.engine(lock);
  if (engine.options().cost_model == CostModel::kMeasured) {
    gpu.resolve_now_and_then(engine);
    begun_ = gpu.begin_op();
  }
}

void OpCall::cancel_on_gpu(const Session::Lock& lock) {
  if (begun_) {
    session_.gpu(lock)->cancel_op(*std::exchange(begun_, std::nullopt));
  }
}

std::optional<cuda::OpClock::Token> OpCall::estimate_cost(Gpu& gpu, bool made_room) {
  std::uint64_t kind = reinterpret_cast<std::uintptr_t>(&traits_);
  Bytes moved{0};
  double product = 1;  // of the elements of all that a matrix product has to do with
  const auto count = [&](Bytes bytes) {
    kind = (kind ^ static_cast<std::uint64_t>(bytes.count())) * 0x100000001b3ULL;
    moved += bytes;
    product *= static_cast<double>(bytes.count()) / 4;
  };
  for (const Operand& operand : operands_) {
    count(Bytes(static_cast<std::int64_t>(impl_of(operand).nbytes())));
  }
  for (const FreshStorage& fresh : fresh_) {
    count(fresh.nbytes);
  }
  kind_ = kind;
  cost_ = gpu.estimate(kind, moved, traits_.matrix_product ? 2 * std::sqrt(product) : 0);
  if (!begun_) {
    return std::nullopt;
  }
  const Gpu::Begun begun = *std::exchange(begun_, std::nullopt);
  if (made_room) {  // with the time of what was done for that
    gpu.cancel_op(begun);
    return std::nullopt;
  }
  if (session_.recording()) {
    cost_ = gpu.time_now(begun);
    return std::nullopt;
  }
  return gpu.end_op(begun);
}

void OpCall::name_timed_op(Gpu& gpu, cuda::OpClock::Token token, std::span<const StorageId> fresh,
                           const Session::Lock& lock) {
  const Engine& engine = session_.engine(lock);
  TimedOp timed{.made = {}, .kind = kind_, .estimate = cost_};
  const auto look_at = [&](StorageId storage) {
    if (storage.valid() && !timed.made.value.valid()) {
      timed.made = engine.values().ticket(engine.current(storage));
    }
  };
  std::for_each(fresh.begin(), fresh.end(), look_at);
  for (const Operand& operand : operands_) {
    if (operand.written) {
      look_at(operand.storage);
    }
  }
  gpu.name_op(token, timed);
}

}  // namespace recoup::detail
