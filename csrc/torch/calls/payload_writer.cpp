#include "csrc/torch/calls/payload_writer.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "csrc/torch/compat/settings.h"
#include "csrc/torch/ops/overwritable.h"

namespace recoup::detail {
namespace {

// Whether a replay writes the operand.
bool is_rewritten(const Operand& operand) {
  return operand.written && operand.storage.valid() && !operand.left_out;
}

}  // namespace

std::unique_ptr<Payload> PayloadWriter::write(GeneratorState random, const EngineLock& lock) {
  payload_ = session_.tensors().new_payload(op_.handle);
  payload_->traits = &op_.traits;
  // Sets of all keys below another key include PythonDispatcher. A replay runs the op's own kernel.
  payload_->keys = op_.keys.remove(c10::DispatchKey::PythonDispatcher);
  payload_->device = session_.device();
  payload_->settings = &Settings::current(session_.device().type());
  payload_->random = std::move(random);
  payload_->fresh_results.assign(op_.fresh.tensors().begin(), op_.fresh.tensors().end());
  payload_->overwritable = op_.overwritable && !fills_empty_tensors();
  number_storages();
  describe_arguments();
  if (session_.engine(lock).options().check_replays) {
    describe_coverage();
  }
  if (!repeatable_) {
    session_.tensors().discard(std::move(payload_));
    return nullptr;
  }
  if (!session_.can().streams) {
    find_cost_key();
  }
  payload_->count_memory();
  return std::move(payload_);
}

void PayloadWriter::find_cost_key() {
  c10::SmallVector<std::int64_t, 4> made;
  for (const FreshStorage& fresh : op_.fresh.storages()) {
    made.push_back(fresh.nbytes.count());
  }
  payload_->find_cost_key({made.data(), made.size()});
}

void PayloadWriter::number_storages() {
  const auto number = [this](Operand& operand, std::uint32_t& next) {
    operand.index = next++;
    payload_->storage_bytes.push_back(static_cast<std::int64_t>(impl_of(operand).nbytes()));
  };
  std::uint32_t next_input = 0;
  for (Operand& operand : op_.operands.all()) {
    if (operand.reads && operand.value.valid()) {
      number(operand, next_input);
    }
  }
  std::uint32_t next_written = 0;
  for (Operand& operand : op_.operands.all()) {
    if (is_rewritten(operand)) {
      number(operand, next_written);
    }
  }
}

// Results are the written and then the fresh storages, as in the OpRecord.
void PayloadWriter::describe_coverage() {
  payload_->coverage = std::make_unique<Coverage>();
  std::unordered_map<const c10::StorageImpl*, std::size_t> results;
  for (const Operand& operand : op_.operands.all()) {
    if (is_rewritten(operand)) {
      results.emplace(&impl_of(operand), results.size());
    }
  }
  for (const FreshStorage& fresh : op_.fresh.storages()) {
    results.emplace(FreshResults::record(fresh).impl, results.size());
  }
  const auto add = [&](const at::Tensor& tensor) {
    if (!tensor.has_storage()) {
      return;
    }
    const auto found = results.find(tensor.storage().unsafeGetStorageImpl());
    if (found != results.end()) {
      payload_->coverage->add(found->second, tensor);
    }
  };
  for_each_tensor(op_.operands.arguments(),
                  [&](const at::Tensor& tensor, std::size_t argument, std::int64_t) {
                    if (op_.operands.writes(argument)) {
                      add(tensor);
                    }
                  });
  for_each_tensor(op_.results, [&](const at::Tensor& tensor, std::size_t, std::int64_t) {
    for_each_part(tensor, add);
  });
}

// Where the bytes of a tensor argument come from in a replay.
void PayloadWriter::set_source(TensorArgument& shape, const at::Tensor& tensor) {
  const Operand* const operand = op_.operands.of(tensor.storage().unsafeGetStorageImpl());
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

void PayloadWriter::describe_tensor(const at::Tensor& tensor, std::size_t argument,
                                    std::int64_t element) {
  if (element == -2) {
    repeatable_ = false;
    return;
  }
  if (!is_plain(*tensor.unsafeGetTensorImpl())) [[unlikely]] {
    describe_composite(tensor, argument, element);
    return;
  }
  TensorArgument& shape = describe(tensor, argument, element, *payload_);
  if (!shape.wrapped_number) {
    set_source(shape, tensor);
  } else if (const auto number = wrapped_number(tensor); !number) {
    set_source(shape, tensor);
  } else if (element >= 0) {
    repeatable_ = false;
  } else {
    shape.source = Source::kScalar;
    payload_->arguments.back() = *number;
  }
}

void PayloadWriter::describe_composite(const at::Tensor& tensor, std::size_t argument,
                                       std::int64_t element) {
  const c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
  const auto index = static_cast<std::size_t>(
      std::find(composites_.begin(), composites_.end(), impl) - composites_.begin());
  payload_->composites.push_back({.argument = static_cast<std::uint16_t>(argument),
                                  .element = static_cast<std::int32_t>(element),
                                  .shell = std::nullopt,
                                  .same_as = index});
  const bool is_new = index == composites_.size();
  composites_.push_back(impl);
  if (!is_new) {
    return;
  }
  std::optional<CompositeShell>& shell = payload_->composites.back().shell;
  shell = CompositeShell::of(tensor);
  if (!shell) {
    repeatable_ = false;  // the kernel has changed it
    return;
  }
  payload_->harmless = false;  // a quantizer is PyTorch's
  for_each_part(tensor, [&](const at::Tensor& part) {
    TensorArgument& shape = describe(part, argument, element, *payload_);
    shape.composite = static_cast<std::int32_t>(index);
    set_source(shape, part);
  });
}

void PayloadWriter::describe_list(const c10::IValue& list, std::size_t argument) {
  if (list.isTensorList()) {
    c10::List<at::Tensor> empty;
    empty.resize(list.toTensorList().size());
    payload_->arguments.emplace_back(std::move(empty));
  } else if (list.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> empty;
    empty.resize(list.toOptionalTensorList().size());
    payload_->arguments.emplace_back(std::move(empty));
  } else {
    repeatable_ &= payload_->add_argument(list);
  }
  for_each_tensor(Arguments(list),
                  [&](const at::Tensor& tensor, std::size_t, std::int64_t element) {
                    describe_tensor(tensor, argument, element);
                  });
}

// Arguments are copied, not moved: the last reference to a tensor must not die under the lock.
void PayloadWriter::describe_arguments() {
  const Arguments arguments = op_.operands.arguments();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const c10::IValue& argument = arguments[i];
    if (argument.isTensor()) {
      const at::Tensor& tensor = argument.toTensor();
      if (!tensor.defined()) {  // kernels with a required tensor argument refuse None
        payload_->arguments.emplace_back(at::Tensor());
        continue;
      }
      payload_->arguments.emplace_back();
      if (!number_of(tensor) && op_.operands.is_constant(tensor, i)) {
        payload_->keep_constant(tensor);
      } else {
        describe_tensor(tensor, i, -1);
      }
    } else if (argument.isList()) {
      describe_list(argument, i);
    } else {
      repeatable_ &= payload_->add_argument(argument);
    }
  }
}

}  // namespace recoup::detail
