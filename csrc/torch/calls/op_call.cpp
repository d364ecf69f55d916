#include "csrc/torch/calls/op_call.h"

#include <algorithm>
#include <utility>

#include "csrc/torch/backend/uncaptured_stream.h"
#include "csrc/torch/calls/payload_writer.h"
#include "csrc/torch/compat/scope_thread.h"
#include "csrc/torch/ops/overwritable.h"
#include "csrc/torch/ops/traits_table.h"
#include "csrc/torch/storages/request.h"

namespace recoup::detail {
namespace {

// PyTorch's Python dispatcher is on while it traces: a kernel in Python may then replace the op's
// own, and a replay has no such dispatcher.
bool in_python_dispatcher() {
  return c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::PythonDispatcher);
}

// Makes the op's stream wait until its operands are ready.
void order_streams(Backend& backend, std::span<const Operand> operands, cuda::Stream stream) {
  for (const Operand& operand : operands) {
    if (operand.storage.valid()) {
      backend.use(impl_of(operand)._mutable_data_ptr_no_checks().get(),
                  Bytes(static_cast<std::int64_t>(impl_of(operand).nbytes())), stream);
    }
  }
}

}  // namespace

void OpCall::run() {
  leaves_out_ = call_.traits.left_out != 0 &&
                (call_.traits.condition_arg < 0 ||
                 call_.on_stack()[static_cast<std::size_t>(call_.traits.condition_arg)].toBool());
  prepare();
  if (session_.device().is_cpu() && needs_one_thread(call_.traits, call_.stack, call_.base))
      [[unlikely]] {
    one_thread_.emplace();
  }
  try {
    kernel_.run_in_budget();
    finish(Results::kOnStack);
  } catch (...) {
    fail();
    throw;
  }
  hold_results();
  if (fresh_.composite()) [[unlikely]] {
    fresh_.keep_descriptions(call_.on_stack());
  }
}

void OpCall::announce(KernelFrame& frame) {
  prepare();
  try {
    {
      const EngineLock lock(session_.mutex());
      for (const Operand& operand : operands_.all()) {
        if (operand.storage.valid()) {
          frame.hold(session_, operand.storage, /*trusted=*/true, lock);
        }
      }
    }
    finish(Results::kNone);
  } catch (...) {
    fail();
    throw;
  }
  for (const Operand& operand : operands_.all()) {
    session_.storages().disarm(impl_of(operand));
  }
}

// As far as it is known before the kernel runs.
NoReplay OpCall::why_not_replayed() const {
  if (!call_.traits.repeatable) {
    return call_.traits.uninitialized ? NoReplay::kUninitialized
           : call_.traits.own_kernel  ? NoReplay::kOp
                                      : NoReplay::kCustomOp;
  }
  if (operands_.foreign()) {
    return NoReplay::kOperand;
  }
  if ((framed_ && KernelFrame::in_opaque()) || in_python_dispatcher()) {
    return NoReplay::kInside;
  }
  return session_.can().kernels_vary && may_vary(call_.traits, call_.stack, call_.base)
             ? NoReplay::kVaries
             : NoReplay::kNone;
}

// Finds the storages, restores and pins them, and prepares those that will be written.
void OpCall::prepare() {
  operands_.find(call_.on_stack(), leaves_out_);
  framed_ = KernelFrame::any();
  kernel_.set_in_place(call_.traits.overwritable && !framed_ && !leaves_out_ && kernel_.alone());
  why_ = why_not_replayed();
  line_ = session_.observers().line();
  if (why_ == NoReplay::kNone) {
    define_operands();
  }
  const EngineLock lock(session_.mutex());
  Turn turn(session_, lock);
  begin(lock);
  turn.go_on();  // until the op has finished or failed
  serial_ = session_.memory().next_serial(lock);
  session_.memory().reset_held(lock);
  room_before_ = session_.engine(lock).context().room_time;
  session_.tensors().kernel_started();
  running_ = true;
}

// Note [Uninitialized memory]
// `empty` leaves bytes undefined, so it cannot be repeated. Programs fill such a tensor by slices
// (rotary embeddings, masks, caches). So before the first op that reads it or writes only a part of
// it, recoup runs `zero_` on all of it, as an op of the program: from then on every byte can be
// recomputed. PyTorch allows any bytes there. An op that replaces the whole content needs no
// `zero_`, and a pointer that was taken for writing may have defined the bytes already:
// Note [Unseen writers].
void OpCall::define_operands() {
  for (const Operand& operand : operands_.all()) {
    if (session_.storages().is_undefined(impl_of(operand)) &&
        (operand.reads || (operand.written && !operand.overwritten))) [[unlikely]] {
      fill(impl_of(operand));
    }
  }
}

// Another thread of the scope may be about to fill or to write the storage, too.
void OpCall::fill(c10::StorageImpl& storage) {
  bool wanted = false;
  {
    const EngineLock lock(session_.mutex());
    Turn turn(session_, lock);
    const StorageId id = session_.storages(lock).find_known(storage);
    wanted = session_.storages().is_undefined(storage) && id.valid() &&
             !session_.engine(lock).user().is_held(id);  // else code may have its address
    if (wanted) {
      turn.go_on();
    }
  }
  if (!wanted) {
    return;
  }
  const auto end_turn = [this] {
    const EngineLock lock(session_.mutex());
    session_.end_turn(lock);
  };
  try {
    zero(storage);
  } catch (...) {
    end_turn();
    throw;
  }
  end_turn();
}

void OpCall::zero(c10::StorageImpl& storage) {
  static const c10::OperatorHandle zero =
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::zero_", "");
  const OpTraits& traits = TraitsTable::instance().of(zero, Reach::kAll);
  if (traits.kind != OpKind::kRecorded) {
    return;  // another kernel has replaced PyTorch's
  }
  const c10::DispatchKeySet backend(backend_type(storage.device_type()).dense);
  at::Tensor bytes = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(StoragePtr::reclaim_copy(&storage)), backend, caffe2::TypeMeta::Make<uint8_t>());
  bytes.unsafeGetTensorImpl()->set_sizes_contiguous({static_cast<std::int64_t>(storage.nbytes())});
  torch::jit::Stack stack{std::move(bytes)};
  OpCall(session_, Call(zero, traits, backend, stack)).run();
}

void OpCall::begin(const EngineLock& lock) {
  Engine& engine = session_.engine(lock);
  cuda::Stream stream;
  std::optional<UncapturedStream> replaying_on;
  if (session_.can().streams) {
    stream = session_.backend(lock).stream();
    session_.backend(lock).require_ready(stream);
    replaying_on.emplace(UncapturedStream::Known{.stream = stream, .memory = &session_.memory()});
    if (call_.traits.own_kernel && !in_python_dispatcher()) {
      kernel_.set_uncaptured(stream);
    }
  }
  if (Attributor* const attributor = session_.observers(lock).attributor()) {
    maker_ = attributor->makers().running(call_.traits.name, line_);
  }
  Request request(engine, session_.tensors().external(), call_.traits.name, maker_);
  Storages& storages = session_.storages(lock);
  for (Operand& operand : operands_.all()) {
    storages.disarm(impl_of(operand));
    operand.storage = storages.find(impl_of(operand));
  }
  if (call_.traits.captures || (call_.traits.collective && session_.can().streams)) {
    for (Operand& operand : operands_.all()) {
      if (operand.storage.valid()) {
        engine.user().escape(operand.storage);
      }
    }
  }
  if (session_.observers().recording() && kernel_.may_be_in_place()) [[unlikely]] {
    operands_.find_overwritable();
  }
  kernel_.find_limits();
  engine.op().begin(call_.traits.name, operands_.all());
  if (kernel_.limits().once) {
    engine.op().run_once();
  }
  try {
    if (session_.can().streams) {
      order_streams(session_.backend(lock), operands_.all(), stream);
    }
    kernel_.begin(lock);
  } catch (...) {
    engine.op().abort(operands_.all(), kernel_.limits());
    throw;
  }
  request.go_on();  // until the op has finished or failed
}

// To be called as soon as the lock is held again.
void OpCall::kernel_ended(const EngineLock& /*lock*/) {
  if (std::exchange(running_, false)) {
    session_.tensors().kernel_ended();
  }
}

// Finds written storages whose bytes the kernel has replaced.
void OpCall::note_written(const EngineLock& lock) {
  if (call_.traits.writes == 0) {
    return;
  }
  for (Operand& operand : operands_.all()) {
    if (!operand.written) {
      continue;
    }
    if (!operand.storage.valid()) {
      if (impl_of(operand).nbytes() != 0) {
        refuse_replay(NoReplay::kResult);  // an empty `out`
      }
    } else if (session_.storages(lock).find_known(impl_of(operand)) != operand.storage) {
      refuse_replay(NoReplay::kResult);  // the old record is gone
      operand.storage = StorageId();
      fresh_.add_made_outside(impl_of(operand));
    }
  }
}

OpRecord OpCall::make_record(const OpUses& uses, Nanoseconds cost, std::uint32_t copies,
                             const EngineLock& lock) {
  Bytes workspace = session_.memory().most_held(lock);
  for (const FreshStorage& fresh : fresh_.storages()) {
    workspace -= fresh.nbytes;
  }
  OpRecord record{.inputs = uses.inputs,
                  .written = uses.written,
                  .fresh = fresh_.storages(),
                  .cost = cost,
                  .workspace = std::max(workspace, Bytes(0)),
                  .payload = nullptr,
                  .verifiable = call_.traits.verifiable};
  record.random = call_.traits.random;
  record.copies = copies;
  record.limits = kernel_.limits();
  // Of an op with overflow memory, only the trace needs a record.
  const NoReplay unrecorded =
      kernel_.overflows() ? NoReplay::kOverflow : session_.engine(lock).op().why_unrecorded(record);
  const bool wanted =
      kernel_.overflows() ? session_.observers().recording() : unrecorded == NoReplay::kNone;
  if (why_ == NoReplay::kNone && wanted) {
    PayloadWriter writer(session_, {.handle = call_.op,
                                    .traits = call_.traits,
                                    .keys = call_.keys,
                                    .operands = operands_,
                                    .fresh = fresh_,
                                    .results = call_.on_stack(),
                                    .overwritable = kernel_.may_be_in_place()});
    std::unique_ptr<Payload> payload = writer.write(kernel_.take_random(), lock);
    if (payload == nullptr) {
      refuse_replay(NoReplay::kArgument);
    }
    if (kernel_.overflows() && payload != nullptr) {
      record.record_bytes = Bytes(static_cast<std::int64_t>(payload->memory));
      session_.tensors().discard(std::move(payload));
    } else if (!kernel_.overflows()) {
      record.recordable = true;
      record.cost_key = payload != nullptr ? payload->cost_key : 0;
      record.payload = payload.release();
    }
  }
  record.repeatable = why_ == NoReplay::kNone;
  record.why = record.repeatable ? unrecorded : why_;
  return record;
}

void OpCall::finish(Results results) {
  const EngineLock lock(session_.mutex());
  kernel_ended(lock);
  Engine& engine = session_.engine(lock);
  const Request request(Request::Begun{}, engine, session_.tensors().external());
  const Nanoseconds made_room = engine.context().room_time - room_before_;
  Nanoseconds cost = kernel_.cost() - std::min(kernel_.cost(), made_room);
  const std::uint32_t copies = kernel_.end(lock);
  refuse_replay(kernel_.why_not_replayed());
  note_written(lock);
  hold_arguments(lock);
  if (results == Results::kOnStack) {
    fresh_.collect(call_.on_stack(), serial_, kernel_.overflows(), lock);
    if (!fresh_.repeatable()) {
      refuse_replay(NoReplay::kResult);
    } else if (kernel_.is_once()) {
      refuse_replay(NoReplay::kOnce);
    }
  }
  OpTiming* const timing = kernel_.timing();
  if (timing != nullptr) {
    cost = timing->end(*session_.backend(lock).times(), call_.traits, fresh_.storages(),
                       made_room > Nanoseconds(0));
  }
  const OpUses uses(operands_.all());
  OpRecord record = make_record(uses, cost, copies, lock);
  c10::SmallVector<StorageId, 4> storages(fresh_.storages().size());
  engine.op().end(record, uses, operands_.all(), storages);
  for (std::size_t i = 0; i < storages.size(); ++i) {
    fresh_.set_id(i, storages[i], lock);
  }
  if (maker_.valid()) [[unlikely]] {
    session_.observers(lock).attributor()->apply_rules(engine, maker_, storages);
  }
  if (timing != nullptr) {
    timing->name(*session_.backend(lock).times(), engine, operands_.all(), storages);
  }
  session_.end_turn(lock);
  arm_storages();
  ended_ = true;
  fresh_.charge_made_outside(lock);
}

void OpCall::hold_arguments(const EngineLock& lock) {
  if (framed_) [[unlikely]] {
    KernelFrame::hold_all_in_all(session_, operands_.arguments(), false, lock);
  }
}

void OpCall::hold_results() {
  if (framed_) [[unlikely]] {
    const EngineLock lock(session_.mutex());
    KernelFrame::hold_all_in_all(session_, call_.on_stack(), KernelFrame::in_opaque(), lock);
  }
}

void OpCall::fail() noexcept {
  if (ended_) {
    return;
  }
  const EngineLock lock(session_.mutex());
  kernel_.fail(lock);
  kernel_ended(lock);
  note_written(lock);
  session_.engine(lock).op().abort(operands_.all(), kernel_.limits());
  session_.end_turn(lock);
  arm_storages();
}

void OpCall::arm_storages() {
  const Storages& storages = session_.storages();
  for (const Operand& operand : operands_.all()) {
    storages.arm(impl_of(operand));
  }
  // A sparse tensor's indices are defined.
  const bool undefined =
      call_.traits.uninitialized && !fresh_.composite() && !fills_empty_tensors();
  for (const FreshStorage& fresh : fresh_.storages()) {
    c10::StorageImpl& storage = *FreshResults::record(fresh).impl;
    if (undefined) {
      storages.arm_undefined(storage);
    } else {
      storages.arm(storage);
    }
  }
}

}  // namespace recoup::detail
