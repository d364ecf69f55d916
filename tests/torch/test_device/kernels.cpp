// What the fallback cannot do: memory, metadata, copies; and ops that only devices have.
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_native.h>
#include <torch/library.h>

#include <string_view>

#include "tests/torch/test_device/device.h"
#include "tests/torch/test_device/fallback.h"
#include "tests/torch/test_device/memory.h"

namespace recoup::test_device {
namespace {

using torch::jit::pop;
using torch::jit::push;
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

// Whether the bytes of one are the bytes of the other: what a copy engine can do.
bool same_bytes(const at::Tensor& to, const at::Tensor& from) {
  return to.dtype() == from.dtype() && to.sizes() == from.sizes() &&
         to.strides() == from.strides() && to.is_conj() == from.is_conj() &&
         to.is_neg() == from.is_neg() && to.is_non_overlapping_and_dense();
}

// Streams run apart from the host where the host's memory is pinned or takes no part.
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

at::Tensor plus(at::Tensor sum, const std::optional<at::Tensor>& bias) {
  return bias && bias->defined() ? sum + *bias : sum;
}

std::optional<at::Tensor> pop_optional(Stack& stack) { return pop(stack).toOptional<at::Tensor>(); }

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

void lstm_cell(Stack& stack) {
  const auto hidden_bias = pop_optional(stack);
  const auto input_bias = pop_optional(stack);
  const at::Tensor cx = pop(stack).toTensor();
  const at::Tensor hidden = pop(stack).toTensor();
  const at::Tensor input = pop(stack).toTensor();
  const auto gates = plus(plus(input + hidden, input_bias), hidden_bias).chunk(4, 1);
  const at::Tensor in = gates[0].sigmoid();
  const at::Tensor forget = gates[1].sigmoid();
  const at::Tensor cell = gates[2].tanh();
  const at::Tensor out = gates[3].sigmoid();
  const at::Tensor cy = forget * cx + in * cell;
  push(stack, out * cy.tanh(), cy, at::cat({in, forget, cell, out}, 1));
}

void lstm_cell_backward(Stack& stack) {
  const bool has_bias = pop(stack).toBool();
  const at::Tensor workspace = pop(stack).toTensor();
  const at::Tensor cy = pop(stack).toTensor();
  const at::Tensor cx = pop(stack).toTensor();
  const auto grad_cy = pop_optional(stack);
  const auto grad_hy = pop_optional(stack);
  const bool has_cy = grad_cy && grad_cy->defined();
  const bool has_hy = grad_hy && grad_hy->defined();
  if (!has_cy && !has_hy) {
    push(stack, at::Tensor(), at::Tensor(), at::Tensor());
    return;
  }
  const auto gates = workspace.chunk(4, 1);
  const at::Tensor &in = gates[0], &forget = gates[1], &cell = gates[2], &out = gates[3];
  const at::Tensor of_out = has_hy ? *grad_hy : at::zeros_like(cx);
  const at::Tensor tanh = cy.tanh();
  const at::Tensor of_cell = plus(of_out * out * (1 - tanh * tanh), grad_cy);
  const at::Tensor grad =
      at::cat({of_cell * cell * (1 - in) * in, of_cell * cx * (1 - forget) * forget,
               of_cell * in * (1 - cell * cell), of_out * tanh * (1 - out) * out},
              1);
  push(stack, grad, of_cell * forget, has_bias ? grad.sum(0) : at::Tensor());
}

void gru_cell(Stack& stack) {
  const auto hidden_bias = pop_optional(stack);
  const auto input_bias = pop_optional(stack);
  const at::Tensor hx = pop(stack).toTensor();
  const auto hidden = plus(pop(stack).toTensor(), hidden_bias).chunk(3, 1);
  const auto input = plus(pop(stack).toTensor(), input_bias).chunk(3, 1);
  const at::Tensor reset = (input[0] + hidden[0]).sigmoid();
  const at::Tensor update = (input[1] + hidden[1]).sigmoid();
  const at::Tensor fresh = (input[2] + reset * hidden[2]).tanh();
  push(stack, fresh + update * (hx - fresh), at::cat({reset, update, fresh, hx, hidden[2]}, 1));
}

void gru_cell_backward(Stack& stack) {
  const bool has_bias = pop(stack).toBool();
  const auto saved = pop(stack).toTensor().chunk(5, 1);
  const at::Tensor grad = pop(stack).toTensor();
  const at::Tensor &reset = saved[0], &update = saved[1], &fresh = saved[2], &hx = saved[3];
  const at::Tensor of_update = grad * (hx - fresh) * (1 - update) * update;
  const at::Tensor of_fresh = grad * (1 - update) * (1 - fresh * fresh);
  const at::Tensor of_reset = of_fresh * saved[4] * (1 - reset) * reset;
  const at::Tensor of_input = at::cat({of_reset, of_update, of_fresh}, 1);
  const at::Tensor of_hidden = at::cat({of_reset, of_update, of_fresh * reset}, 1);
  push(stack, of_input, of_hidden, grad * update, has_bias ? of_input.sum(0) : at::Tensor(),
       has_bias ? of_hidden.sum(0) : at::Tensor());
}

struct DevicesOnly {
  const char* name;
  CpuKernel kernel;
};
constexpr DevicesOnly kDevicesOnly[] = {
    {"aten::convolution_overrideable", &convolution},
    {"aten::convolution_backward_overrideable", &convolution_backward},
    {"aten::_thnn_fused_lstm_cell", &lstm_cell},
    {"aten::_thnn_fused_lstm_cell_backward_impl", &lstm_cell_backward},
    {"aten::_thnn_fused_gru_cell", &gru_cell},
    {"aten::_thnn_fused_gru_cell_backward", &gru_cell_backward},
};

}  // namespace

CpuKernel kernel_of_devices_only(const c10::OperatorHandle& op) {
  for (const DevicesOnly& entry : kDevicesOnly) {
    if (op.operator_name().name == entry.name && op.operator_name().overload_name.empty()) {
      return entry.kernel;
    }
  }
  return nullptr;
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
}

// Else these keys resolve the tensor first, by a copy.
TORCH_LIBRARY_IMPL(aten, Conjugate, library) {
  library.impl("_copy_from", torch::CppFunction::makeFallthrough());
}
TORCH_LIBRARY_IMPL(aten, Negative, library) {
  library.impl("_copy_from", torch::CppFunction::makeFallthrough());
}

}  // namespace recoup::test_device
