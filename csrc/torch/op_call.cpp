#include "csrc/torch/op_call.h"

#include <ATen/Parallel.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "csrc/torch/errors.h"
#include "csrc/torch/tick_clock.h"

namespace recoup::detail {
namespace {

// Tensors whose bytes are not a plain strided buffer on the CPU. Ops on them run as ever.
constexpr c10::DispatchKeySet kForeignKeys{
    c10::DispatchKey::Quantized,    c10::DispatchKey::Sparse,
    c10::DispatchKey::SparseCsr,    c10::DispatchKey::NestedTensor,
    c10::DispatchKey::MkldnnCPU,    c10::DispatchKey::ZeroTensor,
    c10::DispatchKey::Python,       c10::DispatchKey::FuncTorchBatched,
    c10::DispatchKey::Batched,      c10::DispatchKey::FuncTorchGradWrapper,
    c10::DispatchKey::Functionalize};

// The storage of a plain tensor; null for others.
inline c10::StorageImpl* plain_storage(const at::Tensor& tensor) {
  const c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
  if (impl->key_set().has_any(kForeignKeys) || !impl->has_storage() ||
      impl->device_type() != c10::DeviceType::CPU) {
    return nullptr;
  }
  c10::StorageImpl* const storage = impl->unsafe_storage().unsafeGetStorageImpl();
  return storage->sym_nbytes().is_heap_allocated() ? nullptr : storage;
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

std::optional<c10::Scalar> wrapped_number(const at::Tensor& tensor) {
  if (tensor.dim() != 0) {
    return std::nullopt;
  }
  const void* const data = tensor.const_data_ptr();
  switch (tensor.scalar_type()) {
    case c10::ScalarType::Double:
      return c10::Scalar(*static_cast<const double*>(data));
    case c10::ScalarType::Long:
      return c10::Scalar(*static_cast<const std::int64_t*>(data));
    case c10::ScalarType::Bool:
      return c10::Scalar(*static_cast<const bool*>(data));
    case c10::ScalarType::ComplexDouble:
      return c10::Scalar(*static_cast<const c10::complex<double>*>(data));
    default:
      return std::nullopt;
  }
}

std::optional<c10::Scalar> number_of(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->is_wrapped_number() ? wrapped_number(tensor) : std::nullopt;
}

c10::StorageImpl& impl_of(const Operand& operand) {
  return *static_cast<c10::StorageImpl*>(operand.owner);
}

}  // namespace

OpCall::OpCall(Session& session, const c10::OperatorHandle& op, const OpTraits& traits,
               c10::DispatchKeySet keys, torch::jit::Stack& stack)
    : session_(session),
      op_(op),
      traits_(traits),
      keys_(keys),
      stack_(stack),
      argument_count_(op.schema().arguments().size()),
      base_(stack.size() - argument_count_) {}

void OpCall::run() {
  leaves_out_ = traits_.left_out != 0 &&
                (traits_.condition_arg < 0 ||
                 stack_[base_ + static_cast<std::size_t>(traits_.condition_arg)].toBool());
  prepare();
  try {
    run_until_it_fits();
    finish();
  } catch (...) {
    fail();
    throw;
  }
}

void OpCall::run_until_it_fits() {
  Retry retry;
  for (;;) {
    try {
      run_kernel();
      return;
    } catch (const PoolOutOfMemory& error) {
      if (!retry.worth_it(error.report())) {
        throw;
      }
    }
    prepare_retry(retry);
  }
}

void OpCall::prepare_retry(Retry& retry) {
  stack_.resize(base_);
  std::transform(arguments_.begin(), arguments_.end(), std::back_inserter(stack_), &own_copy);
  restore_left_out();
  const Session::Lock lock(session_);
  session_.wait_for_replays(lock);
  retry.all_tried = !session_.engine(lock).retry_op(operands_, retry.need);
  left_out_before_.clear();  // they may have moved
  save_left_out();
}

void OpCall::save_left_out() {
  for (const Operand& operand : operands_) {
    if (operand.left_out && operand.storage.valid()) {
      const auto* const data = static_cast<const char*>(impl_of(operand).data());
      left_out_before_.emplace_back(impl_of(operand)._mutable_data_ptr_no_checks().get(),
                                    std::vector<char>(data, data + impl_of(operand).nbytes()));
    }
  }
}

void OpCall::restore_left_out() noexcept {
  for (const auto& [data, bytes] : left_out_before_) {
    std::memcpy(data, bytes.data(), bytes.size());
  }
}

Operand* OpCall::operand_of(const c10::StorageImpl* impl) {
  for (Operand& operand : operands_) {
    if (operand.owner == impl) {
      return &operand;
    }
  }
  return nullptr;
}

void OpCall::add_operand(const at::Tensor& tensor, std::size_t argument) {
  c10::StorageImpl* const impl = plain_storage(tensor);
  if (impl == nullptr) {
    foreign_ = true;
    return;
  }
  if (number_of(tensor)) {
    return;
  }
  Operand* operand = operand_of(impl);
  const bool known = operand != nullptr;
  if (!known) {
    operand = &operands_.emplace_back();
    operand->owner = impl;
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

// Storage arguments (of set_) are looked at by pointer.
void OpCall::add_storage_operand(const c10::Storage& storage) {
  c10::StorageImpl* const impl = storage.unsafeGetStorageImpl();
  if (impl == nullptr || storage.device_type() != c10::DeviceType::CPU ||
      impl->sym_nbytes().is_heap_allocated()) {
    return;
  }
  if (operand_of(impl) == nullptr) {
    operands_.emplace_back().owner = impl;
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
  repeatable_ = traits_.repeatable && !foreign_;
  const Session::Lock lock(session_);
  session_.wait_for_replays(lock);
  Engine& engine = session_.engine(lock);
  engine.set_running_op(traits_.name);
  for (Operand& operand : operands_) {
    Session::disarm(impl_of(operand));
    operand.storage = session_.find(impl_of(operand), lock);
  }
  if (traits_.kind == OpKind::kForeign) {
    for (Operand& operand : operands_) {
      if (operand.storage.valid()) {
        engine.escape(operand.storage);
      }
    }
  }
  engine.begin_op(traits_.name, operands_);
  if (leaves_out_) {
    save_left_out();
  }
  if (traits_.random && repeatable_) {
    if (const auto generator = generator_of(Arguments(stack_.data() + base_, argument_count_))) {
      random_ = session_.generator_states(lock).save(*generator);
    } else {
      repeatable_ = false;
    }
  }
  serial_ = session_.next_serial(lock);
  session_.reset_held(lock);
  room_before_ = engine.room_time();
  session_.kernel_started(lock);
  running_ = true;
}

void OpCall::run_kernel() {
  const TickClock::Ticks start = TickClock::now();
  {
    const c10::impl::ExcludeDispatchKeyGuard unseen(c10::DispatchKey::Fake);
    op_.redispatchBoxed(keys_, &stack_);
  }
  cost_ = TickClock::between(start, TickClock::now());
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

void OpCall::add_fresh(const at::Tensor& tensor, std::uint16_t result, const Session::Lock& lock) {
  c10::StorageImpl* const impl = plain_storage(tensor);
  if (impl == nullptr) {
    repeatable_ = false;
    return;
  }
  if (operand_of(impl) != nullptr) {
    return;
  }
  const BlockId block = session_.unowned_block(*impl, lock);
  if (!block.valid()) {
    return;  // known already, without bytes, or not of the pool: found when it is first used
  }
  for (const FreshStorage& fresh : fresh_) {
    if (fresh.block == block) {
      return;
    }
  }
  if (session_.serial(block, lock) < serial_) {
    repeatable_ = false;  // made earlier and only handed out now
  }
  fresh_.push_back({.block = block,
                    .nbytes = Bytes(static_cast<std::int64_t>(impl->nbytes())),
                    .handle = session_.add_record(*impl, lock)});
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
      repeatable_ = false;  // resized: its record is gone, the new one is a leaf at its next use
      operand.storage = StorageId();
      continue;
    }
  }
}

void OpCall::finish() {
  const Session::Lock lock(session_);
  kernel_ended(lock);
  Engine& engine = session_.engine(lock);
  cost_ -= std::min(cost_, engine.room_time() - room_before_);
  note_written(lock);
  collect_fresh(lock);
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
  if (repeatable_ && engine.recordable(record)) {
    record.payload = make_payload(lock).release();
    record.recordable = true;
  }
  record.repeatable = repeatable_;
  c10::SmallVector<StorageId, 2> storages(fresh_.size());
  engine.end_op(record, uses, operands_, storages);
  for (std::size_t i = 0; i < storages.size(); ++i) {
    static_cast<StorageRecord*>(fresh_[i].handle)->id = storages[i];
  }
  arm_operands();
}

void OpCall::fail() noexcept {
  restore_left_out();
  const Session::Lock lock(session_);
  kernel_ended(lock);
  note_written(lock);
  session_.engine(lock).abort_op(operands_);
  arm_operands();
}

void OpCall::arm_operands() {
  for (const Operand& operand : operands_) {
    Session::arm(impl_of(operand));
  }
  for (const FreshStorage& fresh : fresh_) {
    c10::StorageImpl& storage = *static_cast<const StorageRecord*>(fresh.handle)->impl;
    if (traits_.repeatable) {
      Session::arm(storage);
    } else {
      Session::arm_undefined(storage);
    }
  }
}

std::unique_ptr<Payload> OpCall::make_payload(const Session::Lock& lock) {
  std::unique_ptr<Payload> payload = session_.new_payload(op_, lock);
  payload->traits = &traits_;
  payload->keys = keys_;
  payload->environment = Environment::current(traits_.uses_precision);
  payload->random = std::move(random_);
  payload->fresh_results = fresh_results_;
  std::uint16_t next_input = 0;
  for (Operand& operand : operands_) {
    if (operand.reads && operand.value.valid()) {
      operand.index = next_input++;
      payload->storage_bytes.push_back(static_cast<std::int64_t>(impl_of(operand).nbytes()));
    }
  }
  std::uint16_t next_written = 0;
  for (Operand& operand : operands_) {
    if (operand.written && operand.storage.valid() && !operand.left_out) {
      operand.index = next_written++;
      payload->storage_bytes.push_back(static_cast<std::int64_t>(impl_of(operand).nbytes()));
    }
  }
  describe_arguments(*payload);
  if (!repeatable_) {
    session_.discard(std::move(payload), lock);
    return nullptr;
  }
  payload->count_memory();
  return payload;
}

// Where the bytes of a tensor argument come from in a replay.
void OpCall::set_source(TensorArgument& shape, const at::Tensor& tensor) {
  const Operand* const operand = operand_of(tensor.storage().unsafeGetStorageImpl());
  if (operand == nullptr) {
    repeatable_ = false;  // the kernel put it there
  } else if (!operand->storage.valid()) {
    shape.source = Source::kShape;
  } else if (operand->left_out) {
    shape.source = Source::kScratch;
  } else if (operand->written) {
    shape.source = Source::kWritten;
    shape.index = operand->index;
  } else if (operand->reads) {
    shape.source = Source::kInput;
    shape.index = operand->index;
  } else {
    shape.source = Source::kShape;
  }
}

void OpCall::describe_tensor(const at::Tensor& tensor, std::size_t argument, std::int64_t element,
                             Payload& payload) {
  if (element == -2) {
    repeatable_ = false;
    return;
  }
  TensorArgument& shape = describe(tensor, argument, element, payload);
  if (!shape.wrapped_number) {
    set_source(shape, tensor);
  } else if (const auto number = wrapped_number(tensor); !number) {
    set_source(shape, tensor);
  } else if (element >= 0) {
    repeatable_ = false;
  } else {
    shape.source = Source::kScalar;
    payload.arguments.back() = *number;
  }
}

void OpCall::describe_list(const c10::IValue& list, std::size_t argument, Payload& payload) {
  if (list.isTensorList()) {
    c10::List<at::Tensor> empty;
    empty.resize(list.toTensorList().size());
    payload.arguments.emplace_back(std::move(empty));
  } else if (list.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> empty;
    empty.resize(list.toOptionalTensorList().size());
    payload.arguments.emplace_back(std::move(empty));
  } else {
    payload.add_argument(list);
  }
  for_each_tensor(Arguments(list),
                  [&](const at::Tensor& tensor, std::size_t, std::int64_t element) {
                    describe_tensor(tensor, argument, element, payload);
                  });
}

// Copied, not moved: the last reference to a tensor must not go while the lock is held.
void OpCall::describe_arguments(Payload& payload) {
  for (std::size_t i = 0; i < arguments_.size(); ++i) {
    const c10::IValue& argument = arguments_[i];
    if (argument.isTensor()) {
      payload.arguments.emplace_back();
      if (const at::Tensor& tensor = argument.toTensor(); tensor.defined()) {
        describe_tensor(tensor, i, -1, payload);
      }
    } else if (argument.isList()) {
      describe_list(argument, i, payload);
    } else {
      payload.add_argument(argument);
    }
  }
}

}  // namespace recoup::detail
