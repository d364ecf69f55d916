// What is kept of an op, so that it can be run again.
#include <unordered_map>
#include <utility>

#include "csrc/torch/op_call.h"
#include "csrc/torch/settings.h"

namespace recoup::detail {

std::optional<c10::Scalar> wrapped_number(const at::Tensor& tensor) {
  if (tensor.dim() != 0 || !tensor.is_cpu()) {
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

std::unique_ptr<Payload> OpCall::make_payload(const Session::Lock& lock) {
  std::unique_ptr<Payload> payload = session_.new_payload(op_, lock);
  payload->traits = &traits_;
  payload->keys = keys_;
  payload->device = session_.device();
  payload->settings = &Settings::current(session_.device().type());
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
  if (session_.verifies(lock)) {
    describe_coverage(*payload);
  }
  if (!repeatable_) {
    session_.discard(std::move(payload), lock);
    return nullptr;
  }
  payload->count_memory();
  return payload;
}

// What it wrote and then what it made, as its OpRecord will have them.
void OpCall::describe_coverage(Payload& payload) const {
  payload.coverage = std::make_unique<Coverage>();
  std::unordered_map<const c10::StorageImpl*, std::size_t> results;
  for (const Operand& operand : operands_) {
    if (operand.written && operand.storage.valid() && !operand.left_out) {
      results.emplace(&impl_of(operand), results.size());
    }
  }
  for (const FreshStorage& fresh : fresh_) {
    results.emplace(static_cast<const StorageRecord*>(fresh.handle)->impl, results.size());
  }
  const auto add = [&](const at::Tensor& tensor) {
    if (!tensor.has_storage()) {
      return;
    }
    const auto found = results.find(tensor.storage().unsafeGetStorageImpl());
    if (found != results.end()) {
      payload.coverage->add(found->second, tensor);
    }
  };
  for_each_tensor(Arguments(arguments_.data(), arguments_.size()),
                  [&](const at::Tensor& tensor, std::size_t argument, std::int64_t) {
                    if (writes(argument)) {
                      add(tensor);
                    }
                  });
  for_each_tensor(Arguments(stack_.data() + base_, stack_.size() - base_),
                  [&](const at::Tensor& tensor, std::size_t, std::int64_t) { add(tensor); });
}

bool OpCall::is_constant(const at::Tensor& tensor, std::size_t argument) const {
  constexpr std::int64_t kMost = 64;
  const c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
  return session_.on_gpu() && !writes(argument) && tensor.is_cpu() && impl->has_storage() &&
         is_plain(*impl) && arguments_[argument].isTensor() && tensor.numel() <= kMost &&
         tensor.storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks().get() != nullptr;
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
      if (const at::Tensor& tensor = argument.toTensor(); !tensor.defined()) {
        continue;
      } else if (!number_of(tensor) && is_constant(tensor, i)) {
        payload.keep_constant(tensor);
      } else {
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
