#include "csrc/torch/op_call.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "csrc/torch/errors.h"
#include "csrc/torch/tick_clock.h"

namespace recoup::detail {
namespace {

// The storage of a plain tensor on the session's device; null for others.
inline c10::StorageImpl* plain_storage(const Session& session, const at::Tensor& tensor) {
  const c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
  if (!is_plain(*impl) || !impl->has_storage() || !session.manages(*impl)) {
    return nullptr;
  }
  c10::StorageImpl* const storage = impl->unsafe_storage().unsafeGetStorageImpl();
  return storage->sym_nbytes().is_heap_allocated() ? nullptr : storage;
}

// Calls visit(storage) for each that the session manages of a plain or composite tensor. Returns
// whether it is a plain one that has it.
template <class Function>
bool for_each_storage(const Session& session, const at::Tensor& tensor, Function&& visit) {
  if (c10::StorageImpl* const storage = plain_storage(session, tensor)) {
    visit(*storage);
    return true;
  }
  if (kind_of(tensor) == TensorKind::kComposite) {
    for_each_component(tensor, [&](const c10::Storage& each) {
      if (c10::StorageImpl* const storage = session.managed(each)) {
        visit(*storage);
      }
    });
  }
  return false;
}

// Whether another run on a GPU may have other bits.
bool varies(const OpTraits& traits, const torch::jit::Stack& stack, std::size_t base) {
  if (traits.varies_if >= 0 && !stack[base + static_cast<std::size_t>(traits.varies_if)].toBool()) {
    return false;
  }
  const at::Context& context = at::globalContext();
  const bool deterministic =
      context.deterministicAlgorithms() && !context.deterministicAlgorithmsWarnOnly();
  return traits.varies_on_gpu != VariesOnGpu::kNo && !deterministic &&
         !(traits.varies_on_gpu == VariesOnGpu::kUnlessDeterministicCudnn &&
           context.deterministicCuDNN());
}

// Covers every byte of its storage once.
bool covers_storage(const at::Tensor& tensor) {
  return tensor.storage_offset() == 0 && tensor.is_non_overlapping_and_dense() &&
         tensor.nbytes() == tensor.storage().unsafeGetStorageImpl()->nbytes();
}

// Lists share their elements, and some kernels change the list that they are given.
c10::IValue own_copy(const c10::IValue& value) {
  if (value.isTensorList()) {
    return value.toTensorList().copy();
  }
  if (value.isOptionalTensorList()) {
    return value.toOptionalTensorList().copy();
  }
  return value;
}

}  // namespace

void OpCall::run() {
  leaves_out_ = traits_.left_out != 0 &&
                (traits_.condition_arg < 0 ||
                 stack_[base_ + static_cast<std::size_t>(traits_.condition_arg)].toBool());
  prepare();
  try {
    run_until_it_fits();
    finish(Results::kOnStack);
  } catch (...) {
    fail();
    throw;
  }
  hold_results();
  if (described_) [[unlikely]] {
    keep_descriptions();
  }
}

// They are asked for outside of any op, and where nothing can be brought back.
void OpCall::keep_descriptions() {
  const Session::Lock lock(session_);
  for_each_tensor(Arguments(stack_.data() + base_, stack_.size() - base_),
                  [&](const at::Tensor& tensor, std::size_t, std::int64_t) {
                    for_each_description(tensor, [&](const c10::Storage& storage) {
                      if (c10::StorageImpl* const impl = session_.managed(storage)) {
                        if (const StorageId id = session_.find(*impl, lock); id.valid()) {
                          session_.engine(lock).escape(id);
                        }
                      }
                    });
                  });
}

void OpCall::announce(KernelFrame& frame) {
  prepare();
  try {
    {
      const Session::Lock lock(session_);
      for (const Operand& operand : operands_) {
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
  for (const Operand& operand : operands_) {
    session_.disarm(impl_of(operand));
  }
}

void OpCall::run_until_it_fits() {
  Retry retry;
  for (;;) {
    try {
      run_kernel();
      return;
    } catch (const PoolOutOfMemory& error) {
      if (!error.is_of(&session_) || !may_run_twice() || !retry.worth_it(error.report())) {
        throw;
      }
    }
    prepare_retry(retry);
  }
}

// A kernel that ran out of memory may have written a part of what it writes, and what it would do
// to that again nobody knows; and it may have drawn random numbers, which it must draw again.
bool OpCall::may_run_twice() const {
  const bool writes = std::any_of(operands_.begin(), operands_.end(), [](const Operand& operand) {
    return operand.written && !operand.left_out && !operand.overwritten;
  });
  return !writes && (!traits_.random || random_ != nullptr);
}

void OpCall::prepare_retry(Retry& retry) {
  stack_.resize(base_);
  std::transform(arguments_.begin(), arguments_.end(), std::back_inserter(stack_), &own_copy);
  const Session::Lock lock(session_);
  session_.wait_for_replays(lock);
  restore_left_out();
  drop_left_out(lock);  // they may move
  retry.all_tried = !session_.engine(lock).op().retry(operands_, retry.need);
  save_left_out(lock);
  if (Gpu* const gpu = session_.gpu(lock)) {
    cancel_on_gpu(lock);
    begun_ = gpu->begin_op();
  }
}

void OpCall::save_left_out(const Session::Lock& lock) {
  for (const Operand& operand : operands_) {
    if (operand.left_out && operand.storage.valid()) {
      left_out_before_.emplace_back(impl_of(operand), session_, lock);
    }
  }
}

void OpCall::drop_left_out(const Session::Lock& lock) noexcept {
  for (Snapshot& before : left_out_before_) {
    before.drop(session_, lock);
  }
  left_out_before_.clear();
}

void OpCall::restore_left_out() noexcept {
  for (const Snapshot& before : left_out_before_) {
    before.restore();
  }
}

// Up to so many are looked through, beyond it each has its place in a table.
constexpr std::size_t kFewOperands = 32;

inline std::int64_t key_of(const c10::StorageImpl* impl) {
  return reinterpret_cast<std::int64_t>(impl);
}

Operand& OpCall::new_operand(c10::StorageImpl* impl) {
  Operand& operand = operands_.emplace_back();
  operand.owner = impl;
  if (traits_.may_rebind) [[unlikely]] {
    c10::raw::weak_intrusive_ptr::incref(impl);
    replaceable_.push_back(c10::weak_intrusive_ptr<c10::StorageImpl>::reclaim(impl));
  }
  const std::size_t count = operands_.size();
  if (count > kFewOperands) [[unlikely]] {
    if (!operand_places_) {
      operand_places_.emplace();
      for (std::size_t i = 0; i + 1 < count; ++i) {
        operand_places_->insert(key_of(&impl_of(operands_[i])),
                                Id<OperandTag>(static_cast<std::uint32_t>(i)));
      }
    }
    operand_places_->insert(key_of(impl), Id<OperandTag>(static_cast<std::uint32_t>(count - 1)));
  }
  return operand;
}

Operand* OpCall::operand_of(const c10::StorageImpl* impl) {
  if (operand_places_) [[unlikely]] {
    const auto place = operand_places_->find(key_of(impl));
    return place ? &operands_[place->index()] : nullptr;
  }
  for (Operand& operand : operands_) {
    if (operand.owner == impl) {
      return &operand;
    }
  }
  return nullptr;
}

void OpCall::add_operand(const at::Tensor& tensor, std::size_t argument) {
  if (number_of(tensor)) {
    return;
  }
  c10::StorageImpl* impl = plain_storage(session_, tensor);
  if (impl == nullptr) [[unlikely]] {
    foreign_ |= !is_constant(tensor, argument);
    impl = bypassed_storage(tensor);
    if (impl == nullptr) {
      add_components(tensor, argument);
      return;
    }
  }
  Operand* operand = operand_of(impl);
  const bool known = operand != nullptr;
  if (!known) {
    operand = &new_operand(impl);
  }
  if (traits_.writes == 0 && traits_.left_out == 0) {
    operand->reads |= !traits_.metadata_only;
    return;
  }
  const bool out = leaves_out(argument);
  const bool writes_it = writes(argument) && !(traits_.left_out != 0 && !leaves_out_ &&
                                               ((traits_.left_out >> argument) & 1U) != 0);
  operand->left_out = (operand->left_out || !known) && out;
  operand->overwritten =
      !known && writes_it && argument == 0 && traits_.overwrites_self && covers_storage(tensor);
  operand->written |= writes_it;
  operand->reads |= !traits_.metadata_only && !operand->overwritten && !out;
}

// Note [Subclasses]
// A subclass with __torch_dispatch__ may have a storage of its own (Tensor.as_subclass). Its ops go
// to Python, where other ops show what is touched; those that are called with the dispatch to
// Python off take the tensor as a plain one. They are run once: the tensor says more than its
// bytes.
c10::StorageImpl* OpCall::bypassed_storage(const at::Tensor& tensor) const {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  constexpr c10::DispatchKeySet kPython(c10::DispatchKey::Python);
  const bool bypassed = !keys_.has(c10::DispatchKey::Python) && impl.key_set().has_any(kPython) &&
                        typeid(impl) == typeid(c10::TensorImpl) &&
                        !impl.key_set().has_any(kWrapperKeys - kPython) && impl.has_storage();
  return bypassed ? session_.managed(tensor.storage()) : nullptr;
}

// Which of them the kernel reads or writes nobody says.
void OpCall::add_components(const at::Tensor& tensor, std::size_t argument) {
  if (kind_of(tensor) != TensorKind::kComposite) {
    return;
  }
  for_each_component(tensor, [&](const c10::Storage& storage) {
    c10::StorageImpl* const impl = session_.managed(storage);
    if (impl == nullptr) {
      return;
    }
    Operand* operand = operand_of(impl);
    if (operand == nullptr) {
      components_.push_back(storage);
      operand = &new_operand(impl);
    }
    operand->overwritten = operand->left_out = false;
    operand->written |= writes(argument);
    operand->reads |= !traits_.metadata_only;
  });
}

// Storage arguments (of set_) are looked at by pointer.
void OpCall::add_storage_operand(const c10::Storage& storage) {
  c10::StorageImpl* const impl = session_.managed(storage);
  if (impl == nullptr) {
    return;
  }
  if (operand_of(impl) == nullptr) {
    new_operand(impl);
  }
  operand_of(impl)->reads = true;
}

// Copies the arguments on the way.
void OpCall::find_operands() {
  const Arguments arguments(stack_.data() + base_, argument_count_);
  for (const c10::IValue& argument : arguments) {
    if (argument.isStorage()) {
      add_storage_operand(argument.toStorage());
    }
  }
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const c10::IValue& argument = arguments[i];
    if (argument.isList()) {
      arguments_.push_back(own_copy(argument));
      for_each_tensor(Arguments(argument), [&](const at::Tensor& tensor, std::size_t,
                                               std::int64_t) { add_operand(tensor, i); });
      continue;
    }
    arguments_.push_back(argument);
    if (argument.isTensor() && argument.toTensor().defined()) {
      add_operand(argument.toTensor(), i);
    }
  }
}

// Finds the storages, restores what was evicted, pins it, and prepares what will be written.
void OpCall::prepare() {
  find_operands();
  framed_ = KernelFrame::any();
  repeatable_ = traits_.repeatable && !foreign_ && !(framed_ && KernelFrame::in_guest()) &&
                !(session_.on_gpu() && varies(traits_, stack_, base_));
  const Session::Lock lock(session_);
  Session::Turn turn(session_, lock);
  begin(lock);
  turn.go_on();  // until it has finished or failed
  serial_ = session_.next_serial(lock);
  session_.reset_held(lock);
  room_before_ = session_.engine(lock).room_time();
  session_.kernel_started(lock);
  running_ = true;
}

void OpCall::begin(const Session::Lock& lock) {
  Engine& engine = session_.engine(lock);
  if (Gpu* const gpu = session_.gpu(lock)) {
    gpu->require_ready();
  }
  engine.set_running_op(traits_.name);
  for (Operand& operand : operands_) {
    session_.disarm(impl_of(operand));
    operand.storage = session_.find(impl_of(operand), lock);
  }
  if (traits_.captures) {
    for (Operand& operand : operands_) {
      if (operand.storage.valid()) {
        engine.escape(operand.storage);
      }
    }
  }
  engine.op().begin(traits_.name, operands_);
  try {
    prepare_kernel(lock);
  } catch (...) {
    engine.op().abort(operands_);
    throw;
  }
}

// What the kernel may change, and needs to run again.
void OpCall::prepare_kernel(const Session::Lock& lock) {
  if (Gpu* const gpu = session_.gpu(lock)) {
    order_on_gpu(*gpu);
  }
  if (leaves_out_) {
    try {
      save_left_out(lock);
    } catch (...) {
      drop_left_out(lock);
      throw;
    }
  }
  if (Gpu* const gpu = session_.gpu(lock)) {
    begin_on_gpu(*gpu, lock);
  }
}

void OpCall::run_kernel() {
  std::optional<Draw> draw;
  if (traits_.random) {
    begin_draw(draw);
  }
  const TickClock::Ticks start = TickClock::now();
  try {
    run_below();
  } catch (const KernelOutOfMemory& error) {
    if (draw) {
      draw->undo();
    }
    throw error.plain();
  } catch (const PoolOutOfMemory&) {
    if (draw) {
      draw->undo();
    }
    throw;
  }
  cost_ = TickClock::between(start, TickClock::now());
}

// Note [The generator's gate]. A kernel in Python would wait for the GIL behind the gate, and one
// that is not ATen's may be in Python: what they draw is not drawn again.
void OpCall::begin_draw(std::optional<Draw>& draw) {
  const Arguments arguments(stack_.data() + base_, argument_count_);
  const bool own_slot = traits_.generator_slot >= 0 && !traits_.with_generator;
  const auto generator = traits_.gated && !keys_.has(c10::DispatchKey::Python)
                             ? generator_of(arguments, session_.device())
                             : std::nullopt;
  if (!generator || !(own_slot || has_gate(session_.device()))) {
    repeatable_ = false;
    random_ = nullptr;
    const Session::Lock lock(session_);
    session_.engine(lock).op().run_once();
    return;
  }
  draw.emplace(*generator, own_slot
                               ? &stack_[base_ + static_cast<std::size_t>(traits_.generator_slot)]
                               : nullptr);
  random_ = draw->before();
}

void OpCall::run_below() {
  const c10::impl::ExcludeDispatchKeyGuard unseen(c10::DispatchKey::Fake);
  if (others_.empty()) [[likely]] {
    op_.redispatchBoxed(keys_, &stack_);
  } else {
    OpCall(*others_.front(), op_, traits_, keys_, stack_, others_.subspan(1)).run();
  }
}

// To be called as soon as the lock is held again.
void OpCall::kernel_ended(const Session::Lock& lock) {
  if (std::exchange(running_, false)) {
    session_.kernel_ended(lock);
  }
}

// Results in storages that did not exist before.
void OpCall::collect_fresh(const Session::Lock& lock) {
  std::uint16_t result = 0;
  for_each_tensor(Arguments(stack_.data() + base_, stack_.size() - base_),
                  [&](const at::Tensor& tensor, std::size_t, std::int64_t) {
                    add_fresh(tensor, result++, lock);
                  });
}

// Whether it is among fresh_.
bool OpCall::is_fresh(BlockId block) {
  if (fresh_.size() < kFewOperands) [[likely]] {
    return std::any_of(fresh_.begin(), fresh_.end(),
                       [block](const FreshStorage& fresh) { return fresh.block == block; });
  }
  if (!fresh_blocks_) {
    fresh_blocks_.emplace();
  }
  for (std::size_t i = fresh_blocks_->size(); i < fresh_.size(); ++i) {
    fresh_blocks_->insert(fresh_[i].block.index(), fresh_[i].block);
  }
  return fresh_blocks_->get(block.index()).valid();
}

// Now, and not when an op comes to see them: they take their room already. Where there is none the
// op fails, though it has been done.
void OpCall::charge_made_outside(const Session::Lock& lock) {
  for (c10::StorageImpl* const storage : made_outside_) {
    (void)session_.find(*storage, lock);
  }
}

void OpCall::add_fresh(const at::Tensor& tensor, std::uint16_t result, const Session::Lock& lock) {
  const bool plain = for_each_storage(session_, tensor, [&](c10::StorageImpl& storage) {
    add_fresh_storage(storage, result, lock);
  });
  if (!plain) {
    repeatable_ = false;
    described_ = true;
  }
}

void OpCall::add_fresh_storage(c10::StorageImpl& storage, std::uint16_t result,
                               const Session::Lock& lock) {
  if (operand_of(&storage) != nullptr) {
    return;
  }
  const BlockId block = session_.unowned_block(storage, lock);
  if (!block.valid()) {
    // Known already, without bytes, or not of the pool.
    if (storage._mutable_data_ptr_no_checks().get() != nullptr &&
        !session_.find_known(storage, lock).valid()) {
      made_outside_.push_back(&storage);
    }
    return;
  }
  if (is_fresh(block)) {
    return;
  }
  if (session_.serial(block, lock) < serial_) {
    repeatable_ = false;  // made earlier and only handed out now
  }
  fresh_.push_back({.block = block,
                    .nbytes = Bytes(static_cast<std::int64_t>(storage.nbytes())),
                    .handle = session_.add_record(storage, lock)});
  fresh_results_.push_back(result);
}

// What was written is a storage that is still the same, or one that the kernel gave new bytes.
void OpCall::note_written(const Session::Lock& lock) {
  if (traits_.writes == 0) {
    return;
  }
  for (Operand& operand : operands_) {
    if (!operand.written) {
      continue;
    }
    if (!operand.storage.valid()) {
      repeatable_ &= impl_of(operand).nbytes() == 0;  // else an empty `out` that was resized
      continue;
    }
    if (session_.find_known(impl_of(operand), lock) != operand.storage) {
      repeatable_ = false;  // resized: its record is gone, the new one is a leaf
      operand.storage = StorageId();
      if (impl_of(operand)._mutable_data_ptr_no_checks().get() != nullptr) {
        made_outside_.push_back(&impl_of(operand));
      }
      continue;
    }
  }
}

void OpCall::finish(Results results) {
  const Session::Lock lock(session_);
  kernel_ended(lock);
  Engine& engine = session_.engine(lock);
  const Nanoseconds made_room = engine.room_time() - room_before_;
  cost_ -= std::min(cost_, made_room);
  drop_left_out(lock);
  note_written(lock);
  hold_arguments(lock);
  if (results == Results::kOnStack) {
    collect_fresh(lock);
  }
  Gpu* const gpu = session_.gpu(lock);
  const auto token =
      gpu == nullptr ? std::nullopt : estimate_cost(*gpu, made_room > Nanoseconds(0));
  const OpUses uses(operands_);
  Bytes workspace = session_.most_held(lock);
  for (const FreshStorage& fresh : fresh_) {
    workspace -= fresh.nbytes;
  }
  OpRecord record{.inputs = uses.inputs,
                  .written = uses.written,
                  .fresh = fresh_,
                  .cost = cost_,
                  .workspace = std::max(workspace, Bytes(0)),
                  .payload = nullptr,
                  .verifiable = traits_.verifiable};
  record.random = traits_.random;
  if (repeatable_ && engine.op().recordable(record)) {
    record.payload = make_payload(lock).release();
    record.recordable = true;
  }
  record.repeatable = repeatable_;
  c10::SmallVector<StorageId, 2> storages(fresh_.size());
  engine.op().end(record, uses, operands_, storages);
  for (std::size_t i = 0; i < storages.size(); ++i) {
    static_cast<StorageRecord*>(fresh_[i].handle)->id = storages[i];
  }
  if (token) {
    name_timed_op(*gpu, *token, storages, lock);
  }
  session_.end_turn(lock);
  arm_operands();
  ended_ = true;
  charge_made_outside(lock);
}

// Calls function(storage id, whether the tensor is of integers) for all tensors of the session.
template <class Function>
void OpCall::for_each_known(Arguments values, const Session::Lock& lock, Function&& function) {
  for_each_tensor(values, [&](const at::Tensor& tensor, std::size_t, std::int64_t) {
    const bool integral = is_plain(*tensor.unsafeGetTensorImpl()) &&
                          at::isIntegralType(tensor.scalar_type(), /*includeBool=*/true);
    for_each_storage(session_, tensor, [&](const c10::StorageImpl& storage) {
      if (const StorageId id = session_.find_known(storage, lock); id.valid()) {
        function(id, integral);
      }
    });
  });
}

void OpCall::hold_arguments(const Session::Lock& lock) {
  if (framed_) [[unlikely]] {
    for_each_known(Arguments(arguments_.data(), arguments_.size()), lock,
                   [&](StorageId storage, bool integral) {
                     KernelFrame::hold_in_all(session_, storage, integral, false, lock);
                   });
  }
}

void OpCall::hold_results() {
  if (framed_) [[unlikely]] {
    const Session::Lock lock(session_);
    const bool made_in_guest = KernelFrame::in_guest();
    for_each_known(Arguments(stack_.data() + base_, stack_.size() - base_), lock,
                   [&](StorageId storage, bool integral) {
                     KernelFrame::hold_in_all(session_, storage, integral, made_in_guest, lock);
                   });
  }
}

void OpCall::fail() noexcept {
  if (ended_) {
    return;
  }
  const Session::Lock lock(session_);
  restore_left_out();
  drop_left_out(lock);
  kernel_ended(lock);
  note_written(lock);
  session_.engine(lock).op().abort(operands_);
  cancel_on_gpu(lock);
  session_.end_turn(lock);
  arm_operands();
}

void OpCall::arm_operands() {
  for (const Operand& operand : operands_) {
    session_.arm(impl_of(operand));
  }
  for (const FreshStorage& fresh : fresh_) {
    c10::StorageImpl& storage = *static_cast<const StorageRecord*>(fresh.handle)->impl;
    if (traits_.repeatable) {
      session_.arm(storage);
    } else {
      session_.arm_undefined(storage);
    }
  }
}

}  // namespace recoup::detail
