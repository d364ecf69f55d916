// Chooses the ops to shadow and dispatches their calls.
#include <ATen/ATen.h>
#include <c10/cuda/CUDAGuard.h>

#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tests/cuda_stand_in/kernels/convolutions.h"
#include "tests/cuda_stand_in/kernels/shadowed_op.h"
#include "tests/cuda_stand_in/kernels/twins.h"
#include "tests/torch/test_device/recurrent_cells.h"

namespace recoup::stand_in {

bool is_nested();

namespace {

using torch::jit::peek;
using torch::jit::Stack;

// These ops' CUDA kernels launch no device kernels.
const std::set<std::string> kLeftAlone = {"aten::empty",
                                          "aten::empty_strided",
                                          "aten::as_strided",
                                          "aten::view",
                                          "aten::_reshape_alias",
                                          "aten::resize_",
                                          "aten::set_",
                                          "aten::record_stream",
                                          "aten::is_pinned",
                                          "aten::_pin_memory",
                                          "aten::_copy_from",
                                          "aten::_local_scalar_dense",
                                          "aten::is_set_to",
                                          "aten::_resize_output_",
                                          "aten::_efficientzerotensor",
                                          "aten::resize_as_",
                                          "aten::_assert_async",
                                          "aten::_foreach_copy_",
                                          "aten::new_empty_strided"};
// These ops' results have sizes that depend on values, or are on the host.
const std::set<std::string> kWaiting = {"aten::equal",
                                        "aten::nonzero",
                                        "aten::masked_select",
                                        "aten::_unique2",
                                        "aten::_unique",
                                        "aten::unique_dim",
                                        "aten::unique_consecutive",
                                        "aten::bincount",
                                        "aten::repeat_interleave",
                                        "aten::unique_dim_consecutive"};
const std::unordered_map<std::string, void (*)(Stack&)> kOfDevicesOnly = {
    {"aten::_thnn_fused_lstm_cell", &test_device::lstm_cell},
    {"aten::_thnn_fused_lstm_cell_backward_impl", &test_device::lstm_cell_backward},
    {"aten::_thnn_fused_gru_cell", &test_device::gru_cell},
    {"aten::_thnn_fused_gru_cell_backward", &test_device::gru_cell_backward},
    {"aten::_conv_depthwise2d", &depthwise_convolution},
};

using Ops = std::unordered_map<c10::OperatorName, ShadowedOp>;

Ops& ops() {
  static Ops* const made = new Ops;
  return *made;
}

// Copies between a device and the host, and plain copies of bytes, are done by the driver.
bool needs_kernel(const at::Tensor& to, const at::Tensor& from) {
  const bool is_within = to.is_cuda() && from.is_cuda() && to.device() == from.device();
  const bool same_values = to.dtype() == from.dtype() && to.is_conj() == from.is_conj() &&
                           to.is_neg() == from.is_neg() && to.sizes() == from.sizes();
  const bool same_layout = (to.is_contiguous() && from.is_contiguous()) ||
                           (to.strides() == from.strides() && to.is_non_overlapping_and_dense());
  return is_within && !(same_values && same_layout);
}

void call(const c10::OperatorHandle& handle, c10::DispatchKeySet keys, Stack* stack) {
  const ShadowedOp& op = ops().at(handle.operator_name());
  const std::size_t count = handle.schema().arguments().size();
  std::optional<c10::Device> device;
  bool able = op.waits || op.copies || !is_nested();
  for (std::size_t i = 0; i < count; ++i) {
    const c10::IValue& value = peek(*stack, i, count);
    for_each_tensor(value, [&](const at::Tensor& tensor) {
      able = able && has_twin(tensor);
      if (on_cuda(tensor)) {
        device = tensor.device();
      }
    });
    if (!device && value.isDevice() && value.toDevice().is_cuda()) {
      device = value.toDevice();
    }
  }
  if (op.copies) {
    able =
        able && needs_kernel(peek(*stack, 0, count).toTensor(), peek(*stack, 1, count).toTensor());
  }
  if (!able) {
    op.kernel.callBoxed(handle, keys, stack);
    return;
  }
  const c10::cuda::OptionalCUDAGuard guard(device);
  if (op.waits) {
    run_now(op, handle, stack);
  } else {
    run_late(op, handle, keys, stack);
  }
}

bool returns_view(const c10::FunctionSchema& schema) {
  for (const c10::Argument& result : schema.returns()) {
    if (result.alias_info() != nullptr && !result.alias_info()->isWrite()) {
      return true;
    }
  }
  return false;
}

bool returns_tensors(const c10::FunctionSchema& schema) {
  for (const c10::Argument& result : schema.returns()) {
    const c10::TypePtr& type = result.type();
    const bool is_list =
        type->kind() == c10::TypeKind::ListType &&
        type->expectRef<c10::ListType>().getElementType()->kind() == c10::TypeKind::TensorType;
    if (type->kind() != c10::TypeKind::TensorType && !is_list) {
      return false;
    }
  }
  return true;
}

std::optional<std::size_t> generator_of(const c10::FunctionSchema& schema) {
  for (std::size_t i = 0; i < schema.arguments().size(); ++i) {
    c10::TypePtr type = schema.arguments()[i].type();
    if (const auto optional = type->cast<c10::OptionalType>()) {
      type = optional->getElementType();
    }
    if (type->kind() == c10::TypeKind::GeneratorType) {
      return i;
    }
  }
  return std::nullopt;
}

// Returns nullopt if the op is not shadowed.
std::optional<ShadowedOp> shadow_of(const c10::OperatorHandle& handle) {
  const c10::OperatorName& name = handle.operator_name();
  const auto cell =
      name.overload_name.empty() ? kOfDevicesOnly.find(name.name) : kOfDevicesOnly.end();
  const bool of_devices_only = cell != kOfDevicesOnly.end();
  const bool copies = name.name == "aten::copy_";  // it has one kernel for all devices
  if (!handle.hasSchema() || name.getNamespace() != "aten" || kLeftAlone.contains(name.name) ||
      !(handle.hasKernelForDispatchKey(c10::DispatchKey::CUDA) || copies) ||
      !(handle.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU) || of_devices_only) ||
      returns_view(handle.schema()) ||
      !(returns_tensors(handle.schema()) || kWaiting.contains(name.name))) {
    return std::nullopt;
  }
  return ShadowedOp{
      .kernel = handle.getComputedKernelForDispatchKey(c10::DispatchKey::CUDA),
      .name = name.name + (name.overload_name.empty() ? "" : "." + name.overload_name),
      .waits = kWaiting.contains(name.name),
      .random = handle.hasTag(at::Tag::nondeterministic_seeded),
      .copies = copies,
      .generator = generator_of(handle.schema()),
      .on_cpu = of_devices_only ? cell->second : nullptr};
}

}  // namespace
}  // namespace recoup::stand_in

// Returns the number of ops that are shadowed from now on. Call it once per process.
RECOUP_STAND_IN_API int stand_in_install_kernels() {
  namespace stand_in = recoup::stand_in;
  static auto* const registered = new std::vector<c10::RegistrationHandleRAII>;
  c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const std::optional<c10::OperatorHandle> handle = dispatcher.findOp(name);
    std::optional<stand_in::ShadowedOp> op = handle ? stand_in::shadow_of(*handle) : std::nullopt;
    if (op) {
      std::string text = op->kernel.debug();
      stand_in::ops().emplace(name, std::move(*op));
      registered->push_back(
          dispatcher.registerImpl(name, c10::DispatchKey::CUDA,
                                  c10::KernelFunction::makeFromBoxedFunction<&stand_in::call>(),
                                  std::nullopt, nullptr, std::move(text)));
    }
  }
  return static_cast<int>(stand_in::ops().size());
}

// Returns one line per failure: a count and a description. The next call overwrites the text.
RECOUP_STAND_IN_API const char* stand_in_kernel_failures() {
  static std::string text;
  text = recoup::stand_in::failures();
  return text.c_str();
}
