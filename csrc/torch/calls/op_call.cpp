#include "csrc/torch/calls/op_call.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "csrc/torch/calls/payload_writer.h"
#include "csrc/torch/compat/errors.h"
#include "csrc/torch/compat/hook.h"
#include "csrc/torch/compat/scope_thread.h"
#include "csrc/torch/ops/compiled_call.h"
#include "csrc/torch/ops/draw_tape.h"
#include "csrc/torch/ops/draws.h"
#include "csrc/torch/ops/overwritable.h"
#include "csrc/torch/ops/tick_clock.h"
#include "csrc/torch/ops/traits_table.h"

namespace recoup::detail {
namespace {

// PyTorch's Python dispatcher is on while it traces: a kernel in Python may then replace the op's
// own, and a replay has no such dispatcher.
bool in_python_dispatcher() {
  return c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::PythonDispatcher);
}

// Makes the op's stream wait until its operands are ready.
void order_streams(Backend& backend, std::span<const Operand> operands) {
  for (const Operand& operand : operands) {
    if (operand.storage.valid()) {
      backend.use(impl_of(operand)._mutable_data_ptr_no_checks().get(),
                  Bytes(static_cast<std::int64_t>(impl_of(operand).nbytes())));
    }
  }
}

}  // namespace

void OpCall::run() {
  leaves_out_ = traits_.left_out != 0 &&
                (traits_.condition_arg < 0 ||
                 stack_[base_ + static_cast<std::size_t>(traits_.condition_arg)].toBool());
  prepare();
  if (session_.device().is_cpu() && needs_one_thread(traits_, stack_, base_)) [[unlikely]] {
    one_thread_.emplace();
  }
  try {
    run_until_it_fits();
    finish(Results::kOnStack);
  } catch (...) {
    fail();
    throw;
  }
  hold_results();
  if (fresh_.composite()) [[unlikely]] {
    fresh_.keep_descriptions(on_stack());
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

void OpCall::save_left_out(const EngineLock& lock) {
  for (const Operand& operand : operands_.all()) {
    if (operand.left_out && operand.storage.valid()) {
      left_out_before_.add(impl_of(operand), session_, lock);
    }
  }
}

// As far as it is known before the kernel runs.
NoReplay OpCall::why_not_replayed() const {
  if (!traits_.repeatable) {
    return traits_.uninitialized ? NoReplay::kUninitialized
           : traits_.own_kernel  ? NoReplay::kOp
                                 : NoReplay::kCustomOp;
  }
  if (operands_.foreign()) {
    return NoReplay::kOperand;
  }
  if ((framed_ && KernelFrame::in_opaque()) || in_python_dispatcher()) {
    return NoReplay::kInside;
  }
  return session_.can().kernels_vary && may_vary(traits_, stack_, base_) ? NoReplay::kVaries
                                                                         : NoReplay::kNone;
}

// Finds the storages, restores and pins them, and prepares those that will be written.
void OpCall::prepare() {
  operands_.find(Arguments(stack_.data() + base_, argument_count_), leaves_out_);
  framed_ = KernelFrame::any();
  why_ = why_not_replayed();
  line_ = session_.line();
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
  OpCall(session_, zero, traits, backend, stack).run();
}

void OpCall::begin(const EngineLock& lock) {
  Engine& engine = session_.engine(lock);
  if (session_.can().streams) {
    session_.backend(lock).require_ready();
  }
  engine.set_running_op(traits_.name);
  if (Attributor* const attributor = session_.attributor(lock)) {
    maker_ = attributor->makers().running(traits_.name, line_);
    engine.set_maker(maker_);
  }
  session_.tensors().external().sweep_paged();
  Storages& storages = session_.storages(lock);
  for (Operand& operand : operands_.all()) {
    storages.disarm(impl_of(operand));
    operand.storage = storages.find(impl_of(operand));
  }
  if (traits_.captures || (traits_.collective && session_.can().streams)) {
    for (Operand& operand : operands_.all()) {
      if (operand.storage.valid()) {
        engine.user().escape(operand.storage);
      }
    }
  }
  if (session_.recording() && may_be_in_place()) [[unlikely]] {
    operands_.find_overwritable();
  }
  limits_ = find_limits();
  engine.op().begin(traits_.name, operands_.all());
  if (limits_.once) {
    engine.op().run_once();
  }
  try {
    prepare_kernel(lock);
  } catch (...) {
    engine.op().abort(operands_.all(), limits_);
    throw;
  }
}

// Saves what the kernel may change and needs again if it is repeated.
void OpCall::prepare_kernel(const EngineLock& lock) {
  const bool streams = session_.can().streams;
  if (streams) {
    order_streams(session_.backend(lock), operands_.all());
  }
  if (leaves_out_) {
    try {
      save_left_out(lock);
    } catch (...) {
      left_out_before_.drop(session_, lock);
      throw;
    }
  }
  if (streams) {
    timing_.begin(*session_.backend(lock).times(), session_.engine(lock), traits_, operands_.all(),
                  session_.recording());
  }
}

void OpCall::run_kernel() {
  std::optional<Draw> draw;
  if (traits_.random) {
    keep_draw(draw);
  }
  const TickClock::Ticks start = TickClock::now();
  try {
    run_without_failure();
  } catch (const PoolOutOfMemory&) {
    if (draw) {
      draw->undo();
    }
    throw;
  }
  cost_ = TickClock::between(start, TickClock::now());
}

// Note [Caught errors]
void OpCall::run_without_failure() {
  CaughtFailure caught(traits_.own_kernel ? nullptr : &Settings::current(session_.device().type()));
  CaughtFailure& of_workers = session_.tensors().failure_of_workers();
  try {
    const FailureNoted noted(caught);
    run_below();
  } catch (const KernelOutOfMemory& error) {
    if (!caught.noted()) {
      throw error.plain();  // of another session
    }
  } catch (...) {
    if (traits_.compiled || (!caught.noted() && !of_workers.noted())) {
      throw;  // a graph may handle an error, and its errors have texts of their own
    }
  }
  if (caught.noted() || of_workers.noted()) [[unlikely]] {
    stack_.resize(base_);
    if (!traits_.random) {  // a draw may hold a generator's lock
      caught.restore_settings();
    }
    throw PoolOutOfMemory(caught.noted() ? caught.take() : of_workers.take(), &session_);
  }
}

void OpCall::keep_draw(std::optional<Draw>& draw) {
  const auto generator =
      repeatable_generator(traits_, keys_, session_.device(), stack_, argument_count_);
  if (!generator) {
    refuse_replay(NoReplay::kDraw);
    random_ = nullptr;
    return;
  }
  begin_draw(draw, traits_, *generator, stack_, argument_count_);
  random_ = draw->before();
}

void OpCall::run_below() {
  const Unseen unseen;
  if (others_.empty()) [[likely]] {
    Hook::proceed(op_, keys_, &stack_);
  } else {
    OpCall(*others_.front(), op_, traits_, keys_, stack_, others_.subspan(1)).run();
  }
}

// To be called as soon as the lock is held again.
void OpCall::kernel_ended(const EngineLock& /*lock*/) {
  if (std::exchange(running_, false)) {
    session_.tensors().kernel_ended();
  }
}

// Finds written storages whose bytes the kernel has replaced.
void OpCall::note_written(const EngineLock& lock) {
  if (traits_.writes == 0) {
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

OpRecord OpCall::make_record(const OpUses& uses, const EngineLock& lock) {
  Bytes workspace = session_.memory().most_held(lock);
  for (const FreshStorage& fresh : fresh_.storages()) {
    workspace -= fresh.nbytes;
  }
  OpRecord record{.inputs = uses.inputs,
                  .written = uses.written,
                  .fresh = fresh_.storages(),
                  .cost = cost_,
                  .workspace = std::max(workspace, Bytes(0)),
                  .payload = nullptr,
                  .verifiable = traits_.verifiable};
  record.random = traits_.random;
  record.copies = copies_;
  limits_.once |= is_once();
  record.limits = limits_;
  record.paged = paged_;
  // Of an op that was paged, only the trace needs a record: Note [Paged results].
  const NoReplay unrecorded =
      paged_ ? NoReplay::kPaged : session_.engine(lock).op().why_unrecorded(record);
  const bool wanted = paged_ ? session_.recording() : unrecorded == NoReplay::kNone;
  if (why_ == NoReplay::kNone && wanted) {
    PayloadWriter writer(session_, {.handle = op_,
                                    .traits = traits_,
                                    .keys = keys_,
                                    .operands = operands_,
                                    .fresh = fresh_,
                                    .results = on_stack(),
                                    .overwritable = may_be_in_place()});
    std::unique_ptr<Payload> payload = writer.write(std::move(random_), lock);
    if (payload == nullptr) {
      refuse_replay(NoReplay::kArgument);
    }
    if (paged_ && payload != nullptr) {
      record.record_bytes = Bytes(static_cast<std::int64_t>(payload->memory));
      session_.tensors().discard(std::move(payload));
    } else if (!paged_) {
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
  const Nanoseconds made_room = engine.context().room_time - room_before_;
  cost_ -= std::min(cost_, made_room);
  copies_ = left_out_before_.in_pool();
  left_out_before_.drop(session_, lock);
  note_written(lock);
  hold_arguments(lock);
  if (results == Results::kOnStack) {
    fresh_.collect(on_stack(), serial_, paged_, lock);
    if (!fresh_.repeatable()) {
      refuse_replay(NoReplay::kResult);
    } else if (is_once()) {
      refuse_replay(NoReplay::kOnce);
    }
  }
  const bool streams = session_.can().streams;
  if (streams) {
    cost_ = timing_.end(*session_.backend(lock).times(), traits_, fresh_.storages(),
                        made_room > Nanoseconds(0));
  }
  engine.set_maker(maker_);
  const OpUses uses(operands_.all());
  OpRecord record = make_record(uses, lock);
  c10::SmallVector<StorageId, 2> storages(fresh_.storages().size());
  engine.op().end(record, uses, operands_.all(), storages);
  for (std::size_t i = 0; i < storages.size(); ++i) {
    fresh_.set_id(i, storages[i], lock);
  }
  if (maker_.valid()) [[unlikely]] {
    session_.attributor(lock)->apply_rules(engine, maker_, storages);
  }
  if (streams) {
    timing_.name(*session_.backend(lock).times(), engine, operands_.all(), storages);
  }
  session_.end_turn(lock);
  arm_storages();
  ended_ = true;
  fresh_.charge_made_outside(lock);
  session_.tensors().external().collect();
}

void OpCall::hold_arguments(const EngineLock& lock) {
  if (framed_) [[unlikely]] {
    KernelFrame::hold_all_in_all(session_, operands_.arguments(), false, lock);
  }
}

void OpCall::hold_results() {
  if (framed_) [[unlikely]] {
    const EngineLock lock(session_.mutex());
    KernelFrame::hold_all_in_all(session_, on_stack(), KernelFrame::in_opaque(), lock);
  }
}

void OpCall::fail() noexcept {
  if (ended_) {
    return;
  }
  const EngineLock lock(session_.mutex());
  left_out_before_.restore();
  left_out_before_.drop(session_, lock);
  kernel_ended(lock);
  note_written(lock);
  session_.engine(lock).op().abort(operands_.all(), limits_);
  if (session_.can().streams) {
    timing_.cancel(*session_.backend(lock).times());
  }
  session_.end_turn(lock);
  arm_storages();
}

void OpCall::arm_storages() {
  const Storages& storages = session_.storages();
  for (const Operand& operand : operands_.all()) {
    storages.arm(impl_of(operand));
  }
  // A sparse tensor's indices are defined.
  const bool undefined = traits_.uninitialized && !fresh_.composite() && !fills_empty_tensors();
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
