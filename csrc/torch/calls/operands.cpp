#include "csrc/torch/calls/operands.h"

#include <ATen/core/List.h>
#include <ATen/core/jit_type.h>

#include <algorithm>
#include <typeinfo>

#include "csrc/torch/ops/overwritable.h"

namespace recoup::detail {
namespace {

// Whether the tensor covers every byte of its storage once.
bool covers_storage(const at::Tensor& tensor) {
  return tensor.storage_offset() == 0 && tensor.is_non_overlapping_and_dense() &&
         tensor.nbytes() == tensor.storage().unsafeGetStorageImpl()->nbytes();
}

// Whether a list of another type contains optional tensors: TorchScript passes a Tensor?[] as a
// list of a type of its own.
bool is_optional_tensors(const c10::IValue& list) {
  const auto elements = list.toListRef();
  const auto is_none = [](const c10::IValue& each) { return each.isNone(); };
  if (!std::all_of(elements.begin(), elements.end(),
                   [&](const c10::IValue& each) { return each.isTensor() || is_none(each); })) {
    return false;
  }
  if (!std::all_of(elements.begin(), elements.end(), is_none)) {
    return true;
  }
  // The list is empty or has no tensor in it.
  const c10::TypePtr type = list.toList().elementType();
  const auto* const optional = type->castRaw<c10::OptionalType>();
  return optional != nullptr && optional->getElementType()->kind() == c10::TypeKind::TensorType;
}

bool has_lists(const c10::IValue& list) {
  const auto elements = list.toListRef();
  return !elements.empty() && elements.front().isList();
}

}  // namespace

void Operands::find_overwritable() {
  if (!traits_.overwritable || foreign_ || composite_ || !device_.device().is_cpu() ||
      fills_empty_tensors()) {
    return;
  }
  const ArgumentShapes shapes = shapes_of(arguments());
  for (Operand& operand : operands_) {
    operand.overwritable = operand.reads && !operand.written &&
                           is_overwritable(shapes, reinterpret_cast<std::uintptr_t>(operand.owner));
  }
}

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

c10::IValue own_copy(const c10::IValue& value) {
  if (!value.isList()) {
    return value;
  }
  if (value.isTensorList()) {
    return value.toTensorList().copy();
  }
  if (value.isOptionalTensorList()) {
    return value.toOptionalTensorList().copy();
  }
  if (is_optional_tensors(value)) {
    c10::List<std::optional<at::Tensor>> typed;
    for (const c10::IValue& element : value.toListRef()) {
      typed.push_back(element.toOptional<at::Tensor>());
    }
    return typed;
  }
  if (value.use_count() == 1 && !has_lists(value)) [[likely]] {
    return value;
  }
  c10::List<c10::IValue> copy = value.toList().copy();
  for (std::size_t i = 0; i < copy.size(); ++i) {
    if (copy.get(i).isList()) {
      copy.set(i, own_copy(copy.get(i)));
    }
  }
  return copy;
}

void Operands::find(Arguments arguments, bool in_passing) {
  in_passing_ = in_passing;
  for (const c10::IValue& argument : arguments) {
    if (argument.isStorage()) {
      add_storage(argument.toStorage());
    }
  }
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const c10::IValue& argument = arguments[i];
    if (argument.isList()) {
      arguments_.push_back(own_copy(argument));
      if (argument.isTensorList()) {
        const std::size_t count = operands_.size() + argument.toListRef().size();
        operands_.reserve(count);
        held_.reserve(count);
      }
      for_each_tensor(Arguments(argument), [&](const at::Tensor& tensor, std::size_t,
                                               std::int64_t) { add_tensor(tensor, i); });
      continue;
    }
    arguments_.push_back(argument);
    if (argument.isTensor() && argument.toTensor().defined()) {
      add_tensor(argument.toTensor(), i);
    }
  }
}

bool is_small_on_cpu(const TensorDevice& device, const at::Tensor& tensor) {
  constexpr std::int64_t kMost = 64;
  const c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
  return !device.manages(*impl) && tensor.is_cpu() && impl->has_storage() && is_plain(*impl) &&
         tensor.numel() <= kMost &&
         tensor.storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks().get() != nullptr;
}

bool Operands::is_constant(const at::Tensor& tensor, std::size_t argument) const {
  return !writes(argument) && arguments_[argument].isTensor() && is_small_on_cpu(device_, tensor);
}

Operand& Operands::add(c10::StorageImpl* storage) {
  Operand& operand = operands_.emplace_back();
  operand.owner = storage;
  c10::raw::weak_intrusive_ptr::incref(storage);
  held_.push_back(c10::weak_intrusive_ptr<c10::StorageImpl>::reclaim(storage));
  const std::size_t count = operands_.size();
  if (count > kFew) [[unlikely]] {
    if (!places_) {
      places_.emplace();
      for (std::size_t i = 0; i + 1 < count; ++i) {
        places_->insert(key_of(&impl_of(operands_[i])),
                        Id<OperandTag>(static_cast<std::uint32_t>(i)));
      }
    }
    places_->insert(key_of(storage), Id<OperandTag>(static_cast<std::uint32_t>(count - 1)));
  }
  return operand;
}

void Operands::add_tensor(const at::Tensor& tensor, std::size_t argument) {
  if (number_of(tensor)) {
    return;
  }
  c10::StorageImpl* storage = plain_storage(device_, tensor);
  if (storage == nullptr) [[unlikely]] {
    const bool readable = is_readable_composite(tensor, argument);
    foreign_ |= !readable && !is_constant(tensor, argument);
    composite_ = true;
    storage = bypassed_storage(tensor);
    if (storage == nullptr) {
      add_components(tensor, argument, readable);
      return;
    }
  }
  Operand* operand = known(storage);
  const bool first = operand == nullptr;
  if (first) {
    operand = &add(storage);
  }
  if (traits_.writes == 0 && traits_.left_out == 0) {
    operand->reads |= !traits_.metadata_only;
    return;
  }
  const bool may_leave_out = has(traits_.left_out, argument);
  const bool leaves_out = in_passing_ && may_leave_out;
  const bool writes_it = writes(argument) && (in_passing_ || !may_leave_out);
  operand->left_out = (operand->left_out || first) && leaves_out;
  const bool replaces = (argument == 0 && traits_.overwrites_self) || has(traits_.outs, argument);
  operand->overwritten = first && writes_it && replaces && covers_storage(tensor);
  operand->written |= writes_it;
  operand->reads |= !traits_.metadata_only && !operand->overwritten && !leaves_out;
}

// Note [Subclasses]
// A subclass with __torch_dispatch__ may have a storage of its own (Tensor.as_subclass). Its ops go
// to Python, where other ops show which tensors are used. Ops that are called with the dispatch to
// Python off treat the tensor as a plain one. They are not replayed, since the tensor has more
// state than its bytes.
c10::StorageImpl* Operands::bypassed_storage(const at::Tensor& tensor) const {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  constexpr c10::DispatchKeySet kPython(c10::DispatchKey::Python);
  const bool bypassed = !keys_.has(c10::DispatchKey::Python) && impl.key_set().has_any(kPython) &&
                        typeid(impl) == typeid(c10::TensorImpl) &&
                        !impl.key_set().has_any(kWrapperKeys - kPython) && impl.has_storage();
  return bypassed ? device_.managed(tensor.storage()) : nullptr;
}

// Whether a replay can rebuild the tensor, of whose storages all are on the device.
bool Operands::is_readable_composite(const at::Tensor& tensor, std::size_t argument) const {
  if (writes(argument) || !CompositeShell::of(tensor)) {
    return false;
  }
  bool managed = true;
  for_each_part(tensor, [&](const at::Tensor& part) {
    const c10::Storage& storage = part.storage();
    managed &= storage.nbytes() == 0 || device_.managed(storage) != nullptr;
  });
  return managed;
}

// Counts every component as written like the argument, because the schema does not tell them apart,
// and as read: ops that read only shapes of a strided tensor copy the indices of a sparse one.
// What describes a nested tensor that a replay can rebuild is part of the record, and no operand.
void Operands::add_components(const at::Tensor& tensor, std::size_t argument, bool readable) {
  if (kind_of(tensor) != TensorKind::kComposite) {
    return;
  }
  const auto add_component = [&](const c10::Storage& each) {
    c10::StorageImpl* const storage = device_.managed(each);
    if (storage == nullptr) {
      return;
    }
    Operand* operand = known(storage);
    if (operand == nullptr) {
      components_.push_back(each);
      operand = &add(storage);
    }
    operand->overwritten = operand->left_out = false;
    operand->written |= writes(argument);
    operand->reads = true;
  };
  if (readable) {
    for_each_part(tensor, [&](const at::Tensor& part) { add_component(part.storage()); });
  } else {
    for_each_component(tensor, add_component);
  }
}

// Storage arguments (of set_) are read by pointer.
void Operands::add_storage(const c10::Storage& storage) {
  c10::StorageImpl* const impl = device_.managed(storage);
  if (impl == nullptr) {
    return;
  }
  Operand* const operand = known(impl);
  (operand == nullptr ? add(impl) : *operand).reads = true;
}

}  // namespace recoup::detail
