// Tensors that are more than one strided buffer, and the storages that they are made of.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/FunctionRef.h>

#include <cstdint>
#include <typeinfo>

namespace recoup::detail {

enum class TensorKind : std::uint8_t {
  kPlain,      // strided, over a storage of its own
  kComposite,  // its bytes are in storages that can be named: sparse, nested, quantized
  kWrapper,    // has no bytes; those of the tensor inside are reached by ops on that one
  kOpaque,     // its bytes are where nobody can look: a oneDNN layout, a class that we do not know
};

// Plain tensors with one of these keys are none.
inline constexpr c10::DispatchKeySet kWrapperKeys{
    c10::DispatchKey::ZeroTensor,           c10::DispatchKey::Python,
    c10::DispatchKey::FuncTorchBatched,     c10::DispatchKey::Batched,
    c10::DispatchKey::FuncTorchGradWrapper, c10::DispatchKey::Functionalize};

// By its class, not by a list of keys: a new kind of tensor is a new class.
inline bool is_plain(const c10::TensorImpl& tensor) {
  return typeid(tensor) == typeid(c10::TensorImpl) && !tensor.key_set().has_any(kWrapperKeys);
}

TensorKind kind_of(const at::Tensor& tensor);

// Calls visit(storage) for each storage of a composite tensor, those of the tensors in it included;
// some may have no bytes.
void for_each_component(const at::Tensor& tensor,
                        c10::function_ref<void(const c10::Storage&)> visit);

// The storages among them whose bytes are read whenever somebody asks for the tensor's sizes, by
// pointer and without an op: those that describe the parts of a nested tensor.
void for_each_description(const at::Tensor& tensor,
                          c10::function_ref<void(const c10::Storage&)> visit);

}  // namespace recoup::detail
