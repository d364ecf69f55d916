#include "tests/cuda_stand_in/kernels/twins.h"

#include <ATen/ATen.h>

#include <cstring>
#include <utility>

namespace recoup::stand_in {
namespace {

std::size_t offset_bytes(const at::Tensor& tensor) {
  return static_cast<std::size_t>(tensor.storage_offset()) * tensor.itemsize();
}

// Reads the storage's address without notifying it, so that no copy on write is triggered.
void* address_of_storage(const at::Tensor& tensor) {
  return tensor.storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks().get();
}

at::Tensor tensor_over(void* bytes, std::size_t size, const at::Tensor& like) {
  c10::Storage storage(c10::Storage::use_byte_size_t(), size,
                       c10::DataPtr(bytes, c10::Device(c10::kCPU)), nullptr, false);
  at::Tensor made = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), like.dtype());
  c10::TensorImpl* const impl = made.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
  impl->_set_conj(like.is_conj());
  impl->_set_neg(like.is_neg());
  if (like.unsafeGetTensorImpl()->is_wrapped_number()) {
    impl->set_wrapped_number(true);
  }
  return made;
}

}  // namespace

bool on_cuda(const at::Tensor& tensor) { return tensor.defined() && tensor.is_cuda(); }

bool has_twin(const at::Tensor& tensor) {
  return !tensor.defined() ||
         (tensor.layout() == at::kStrided && tensor.has_storage() && !tensor.is_quantized() &&
          !tensor._is_zerotensor() && (tensor.is_cuda() || tensor.is_cpu()));
}

StandInUse bytes_used(const at::Tensor& tensor, bool write) {
  std::int64_t last = 0;
  for (std::int64_t i = 0; i < tensor.dim(); ++i) {
    last += (tensor.size(i) - 1) * tensor.stride(i);
  }
  const std::size_t size =
      tensor.numel() == 0 ? 0 : static_cast<std::size_t>(last + 1) * tensor.itemsize();
  return {.memory = static_cast<char*>(address_of_storage(tensor)) + offset_bytes(tensor),
          .size = size,
          .write = write ? 1 : 0};
}

at::Tensor twin_of(TwinMemory& memory, const at::Tensor& tensor, bool write) {
  if (!tensor.defined()) {
    return tensor;
  }
  if (tensor.is_cuda()) {
    if (tensor.numel() > 0) {
      memory.uses.push_back(bytes_used(tensor, write));
    }
    void* const at = address_of_storage(tensor);
    return tensor_over(at == nullptr ? nullptr : stand_in_bytes(at), tensor.storage().nbytes(),
                       tensor);
  }
  const auto* const begin = static_cast<const char*>(tensor.storage().data());
  auto copy = std::make_shared<std::vector<char>>(begin, begin + tensor.storage().nbytes());
  memory.copies.push_back(copy);
  return tensor_over(copy->data(), copy->size(), tensor);
}

c10::IValue twin_of(TwinMemory& memory, const c10::IValue& value, bool write) {
  if (value.isTensor()) {
    return twin_of(memory, value.toTensor(), write);
  }
  if (value.isTensorList()) {
    c10::List<at::Tensor> twins;
    for (const at::Tensor& tensor : value.toTensorVector()) {
      twins.push_back(twin_of(memory, tensor, write));
    }
    return twins;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> twins;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
      twins.push_back(tensor ? std::optional(twin_of(memory, *tensor, write)) : std::nullopt);
    }
    return twins;
  }
  if (value.isDevice() && value.toDevice().is_cuda()) {
    return c10::Device(c10::kCPU);
  }
  return value;
}

}  // namespace recoup::stand_in
