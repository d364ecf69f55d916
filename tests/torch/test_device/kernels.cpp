// Kernels that the fallback cannot provide: memory, metadata, copies; and ops that only devices
// have.
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_native.h>
#include <torch/library.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <vector>

#include "tests/torch/test_device/device.h"
#include "tests/torch/test_device/fallback.h"
#include "tests/torch/test_device/fused_attention.h"
#include "tests/torch/test_device/memory.h"
#include "tests/torch/test_device/recurrent_cells.h"

namespace recoup::test_device {
namespace {

using torch::jit::Stack;

constexpr c10::DispatchKeySet kKeys{c10::DispatchKey::PrivateUse1};

c10::Device or_current(std::optional<c10::Device> device) {
  return device && device->has_index() ? *device : c10::Device(kType, current_device());
}

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype,
                 std::optional<at::Layout> /*layout*/, std::optional<at::Device> device,
                 std::optional<bool> /*pin*/, std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(or_current(device));
  return at::Tensor(
      at::detail::empty_generic(size, allocator(), kKeys, c10::dtype_or_default(dtype), format));
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride,
                         std::optional<at::ScalarType> dtype, std::optional<at::Layout> /*layout*/,
                         std::optional<at::Device> device, std::optional<bool> /*pin*/) {
  const c10::DeviceGuard guard(or_current(device));
  return at::Tensor(at::detail::empty_strided_generic(size, stride, allocator(), kKeys,
                                                      c10::dtype_or_default(dtype)));
}

void need_bytes(const c10::Storage& storage, std::size_t size) {
  if (storage.nbytes() < size) {
    resize_storage(*storage.unsafeGetStorageImpl(), size);
  }
}

const at::Tensor& resize(const at::Tensor& self, at::IntArrayRef size,
                         std::optional<at::MemoryFormat> format) {
  const std::size_t bytes = at::detail::computeStorageNbytesContiguous(
      size, self.dtype().itemsize(), static_cast<std::size_t>(self.storage_offset()));
  if (c10::multiply_integers(size) > 0) {
    need_bytes(self.storage(), bytes);
  }
  at::native::resize_impl_cpu_(self.unsafeGetTensorImpl(), size, std::nullopt,
                               /*resize_storage=*/false);
  if (format) {
    self.unsafeGetTensorImpl()->empty_tensor_restride(*format);
  }
  return self;
}

at::Tensor& set_storage(at::Tensor& self, at::Storage source, int64_t offset, at::IntArrayRef size,
                        at::IntArrayRef stride) {
  at::native::checkSetStorage(self, source, offset, size, stride);
  const auto from = static_cast<std::size_t>(offset);
  const std::size_t item = self.dtype().itemsize();
  if (c10::multiply_integers(size) > 0) {
    need_bytes(source, stride.data() == nullptr
                           ? at::detail::computeStorageNbytesContiguous(size, item, from)
                           : at::detail::computeStorageNbytes(size, stride, item, from));
  }
  self.unsafeGetTensorImpl()->set_storage_offset(offset);
  at::native::resize_impl_cpu_(
      self.unsafeGetTensorImpl(), size,
      stride.data() == nullptr ? at::OptionalIntArrayRef() : at::OptionalIntArrayRef(stride),
      /*resize_storage=*/false);
  return self;
}

at::Tensor& set_whole_storage(at::Tensor& self, at::Storage source) {
  const auto count = static_cast<int64_t>(source.nbytes() / self.dtype().itemsize());
  return set_storage(self, std::move(source), 0, {count}, {});
}

at::Tensor& set_nothing(at::Tensor& self) {
  const c10::DeviceGuard guard(self.device());
  return set_storage(self,
                     c10::Storage(c10::Storage::use_byte_size_t(), 0, allocator(),
                                  /*resizable=*/true),
                     0, {0}, {});
}

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  return self.unsafeGetTensorImpl() == source.unsafeGetTensorImpl()
             ? self
             : set_storage(self, source.storage(), source.storage_offset(), source.sizes(),
                           source.strides());
}

// Overwrites the memory of freed StorageImpls, so that code that still reads them fails.
void poison_freed_storages(std::size_t count) {
  std::vector<std::vector<unsigned char>> blocks;
  for (std::size_t i = 0; i < count; ++i) {
    blocks.emplace_back(sizeof(c10::StorageImpl), static_cast<unsigned char>(0xff));
  }
}

// Like cuDNN's: the weights become views of one new storage, which the schema does not declare.
at::Tensor flatten_weights(at::TensorList weights, int64_t /*weights_a_layer*/,
                           int64_t /*input_size*/, int64_t /*mode*/, int64_t /*hidden_size*/,
                           int64_t /*projection_size*/, int64_t /*layers*/, bool /*batch_first*/,
                           bool /*bidirectional*/) {
  int64_t count = 0;
  for (const at::Tensor& weight : weights) {
    count += weight.numel();
  }
  const at::Tensor flat = at::zeros({count}, weights.front().options());
  int64_t offset = 0;
  for (const at::Tensor& weight : weights) {
    const at::Tensor part = flat.narrow(0, offset, weight.numel()).view(weight.sizes());
    offset += weight.numel();
    part.copy_(weight);
    const at::Tensor rebound = weight;
    rebound.set_(part);
  }
  poison_freed_storages(4 * weights.size());
  return flat;
}

// Whether a copy engine can copy the bytes without conversion.
bool same_bytes(const at::Tensor& to, const at::Tensor& from) {
  return to.dtype() == from.dtype() && to.sizes() == from.sizes() &&
         to.strides() == from.strides() && to.is_conj() == from.is_conj() &&
         to.is_neg() == from.is_neg() && to.is_non_overlapping_and_dense();
}

// Whether the copy can run asynchronously: within one device, or non-blocking with pinned memory.
bool can_be_late(const at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  if (to.device().type() == from.device().type()) {
    return to.device() == from.device();
  }
  const at::Tensor& host = to.is_cpu() ? to : from;
  return non_blocking && at::globalContext().getPinnedMemoryAllocator(kType) != nullptr &&
         host.is_pinned();
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  const Unseen unseen;
  const c10::Device device = to.is_cpu() ? from.device() : to.device();
  const c10::DeviceGuard guard(device);
  const auto size = static_cast<int64_t>(to.nbytes());
  if (same_bytes(to, from) && can_be_late(to, from, non_blocking)) {
    void* const target = to.mutable_data_ptr();
    const void* const source = from.const_data_ptr();
    const auto distance = static_cast<const char*>(source) - static_cast<const char*>(target);
    if (std::abs(distance) >= size) {
      if (size > 0) {
        fake().copy(current_stream(device.index()), target, source, Bytes(size));
      }
      return to;
    }
  }
  Twins twins;
  if (!to.is_cpu()) {
    (void)to.storage().mutable_data();
  }
  at::Tensor cpu_to = twins.lower(to);
  const at::Tensor cpu_from = twins.lower(from);
  twins.wait();
  cpu_to.copy_(cpu_from);
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  const Unseen unseen;
  to.resize_(from.sizes());
  return copy_from(from, to, false);
}

at::Scalar local_scalar_dense(const at::Tensor& self) {
  const Unseen unseen;
  Twins twins;
  const at::Tensor cpu = twins.lower(self);
  twins.wait();
  return at::_local_scalar_dense(cpu);
}

void record_stream(at::Tensor& self, c10::Stream stream) {
  slot().load()->recordStream(self.storage().data_ptr(), stream);
}

void convolution(Stack& stack) {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::convolution", "");
  op.callBoxed(stack);
}

void convolution_backward(Stack& stack) {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::convolution_backward", "");
  constexpr std::size_t kArguments = 10;
  const at::Tensor grad = torch::jit::peek(stack, 0, kArguments).toTensor();
  const bool wants_bias = torch::jit::peek(stack, kArguments - 1, kArguments).toBoolList().get(2);
  c10::IValue bias_sizes;
  if (wants_bias) {
    bias_sizes = std::vector<int64_t>{grad.size(1)};
  }
  stack.insert(stack.end() - 7, std::move(bias_sizes));
  op.callBoxed(stack);
}

struct DevicesOnly {
  const char* name;
  CpuKernel kernel;
  std::uint32_t on_cpu = 0;  // a bit for each result that stays on the CPU
};
constexpr DevicesOnly kDevicesOnly[] = {
    {"aten::convolution_overrideable", &convolution},
    {"aten::convolution_backward_overrideable", &convolution_backward},
    {"aten::_thnn_fused_lstm_cell", &lstm_cell},
    {"aten::_thnn_fused_lstm_cell_backward_impl", &lstm_cell_backward},
    {"aten::_thnn_fused_gru_cell", &gru_cell},
    {"aten::_thnn_fused_gru_cell_backward", &gru_cell_backward},
    {"aten::_scaled_dot_product_flash_attention", &flash_attention},
    {"aten::_scaled_dot_product_flash_attention_backward", &flash_attention_backward},
    {"aten::_scaled_dot_product_efficient_attention", &efficient_attention, 0b1100},
    {"aten::_scaled_dot_product_efficient_attention_backward", &efficient_attention_backward},
};

const DevicesOnly* find_entry(const c10::OperatorHandle& op) {
  const c10::OperatorName& name = op.operator_name();
  const auto* const found =
      std::find_if(std::begin(kDevicesOnly), std::end(kDevicesOnly),
                   [&](const DevicesOnly& entry) { return name.name == entry.name; });
  return found != std::end(kDevicesOnly) && name.overload_name.empty() ? found : nullptr;
}

}  // namespace

CpuKernel kernel_of_devices_only(const c10::OperatorHandle& op) {
  const DevicesOnly* const entry = find_entry(op);
  return entry == nullptr ? nullptr : entry->kernel;
}

bool stays_on_cpu(const c10::OperatorHandle& op, std::size_t result) {
  const DevicesOnly* const entry = find_entry(op);
  return entry != nullptr && ((entry->on_cpu >> result) & 1U) != 0;
}

const std::vector<const char*>& ops_of_devices_only() {
  static const auto* const names = [] {
    auto* const all = new std::vector<const char*>;
    for (const DevicesOnly& entry : kDevicesOnly) {
      all->push_back(entry.name);
    }
    return all;
  }();
  return *names;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &empty_strided);
  library.impl("as_strided", &at::native::as_strided_tensorimpl);
  library.impl("view", &at::native::view);
  library.impl("_reshape_alias", &at::native::_reshape_alias);
  library.impl("resize_", &resize);
  library.impl("set_", &set_nothing);
  library.impl("set_.source_Tensor", &set_tensor);
  library.impl("set_.source_Storage", &set_whole_storage);
  library.impl("set_.source_Storage_storage_offset", &set_storage);
  library.impl("_copy_from", &copy_from);
  library.impl("_copy_from_and_resize", &copy_from_and_resize);
  library.impl("_local_scalar_dense", &local_scalar_dense);
  library.impl("record_stream", &record_stream);
  library.impl("_cudnn_rnn_flatten_weight", &flatten_weights);
}

// Otherwise these keys would first resolve the tensor by a copy.
TORCH_LIBRARY_IMPL(aten, Conjugate, library) {
  library.impl("_copy_from", torch::CppFunction::makeFallthrough());
}
TORCH_LIBRARY_IMPL(aten, Negative, library) {
  library.impl("_copy_from", torch::CppFunction::makeFallthrough());
}

}  // namespace recoup::test_device
