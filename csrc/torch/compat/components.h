// Tensors that consist of more than one strided buffer, and their storages.
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
  kComposite,  // its bytes are in storages that recoup can find: sparse, nested, quantized
  kWrapper,    // has no bytes of its own: ops on the inner tensor reach them
  kOpaque,     // its bytes cannot be located: a oneDNN layout, an unknown class
};

// Strided tensors with one of these keys are wrappers.
inline constexpr c10::DispatchKeySet kWrapperKeys{
    c10::DispatchKey::ZeroTensor,           c10::DispatchKey::Python,
    c10::DispatchKey::FuncTorchBatched,     c10::DispatchKey::Batched,
    c10::DispatchKey::FuncTorchGradWrapper, c10::DispatchKey::Functionalize};

// Decided by class, not by a list of keys: a new kind of tensor is a new class.
inline bool is_plain(const c10::TensorImpl& tensor) {
  return typeid(tensor) == typeid(c10::TensorImpl) && !tensor.key_set().has_any(kWrapperKeys);
}

TensorKind kind_of(const at::Tensor& tensor);

// Calls visit(storage) for each storage of a composite tensor, including those of the tensors in
// it. Some may have no bytes.
void for_each_component(const at::Tensor& tensor,
                        c10::function_ref<void(const c10::Storage&)> visit);

// Visits only the storages that PyTorch reads by pointer, without an op, whenever the tensor's
// sizes are requested: those that describe the parts of a nested tensor.
void for_each_description(const at::Tensor& tensor,
                          c10::function_ref<void(const c10::Storage&)> visit);

}  // namespace recoup::detail
