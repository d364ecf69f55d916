// Convolutions of the host-only mode: Note [Host only]. Without cuDNN, PyTorch's own kernels call
// cuBLAS once for each image. These have one kernel, as cuDNN's have.
#include <ATen/ATen.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include <array>
#include <string>
#include <tuple>
#include <vector>

#include "tests/cuda_stand_in/device/test_interface.h"

namespace recoup::stand_in {
namespace {

void enqueue(double flops) {
  stand_in_product(c10::cuda::getCurrentCUDAStream().stream(), flops, nullptr, 0, "a convolution");
}

double flops_of(const at::Tensor& output, const at::Tensor& weight) {
  return 2.0 * static_cast<double>(output.numel()) *
         static_cast<double>(weight.numel() / weight.size(0));
}

at::Tensor convolve(const at::Tensor& self, const at::Tensor& weight, at::IntArrayRef kernel,
                    const std::optional<at::Tensor>& /*bias*/, at::IntArrayRef stride,
                    at::IntArrayRef padding) {
  const auto side = [&](std::size_t i) {
    return (self.size(static_cast<std::int64_t>(2 + i)) + 2 * padding[i] - kernel[i]) / stride[i] +
           1;
  };
  at::Tensor made = at::empty({self.size(0), weight.size(0), side(0), side(1)}, self.options());
  enqueue(flops_of(made, weight));
  return made;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolve_backward(
    const at::Tensor& gradient, const at::Tensor& self, const at::Tensor& weight,
    at::IntArrayRef /*kernel*/, at::IntArrayRef /*stride*/, at::IntArrayRef /*padding*/,
    std::array<bool, 3> wanted) {
  std::tuple<at::Tensor, at::Tensor, at::Tensor> made;
  if (wanted[0]) {
    std::get<0>(made) = at::empty_like(self);
    enqueue(flops_of(gradient, weight));
  }
  if (wanted[1]) {
    std::get<1>(made) = at::empty_like(weight);
    enqueue(flops_of(gradient, weight));
  }
  if (wanted[2]) {
    std::get<2>(made) = at::empty({weight.size(0)}, weight.options());
    enqueue(static_cast<double>(gradient.numel()));
  }
  return made;
}

template <class Function>
void replace(const char* name, const char* overload, Function* function) {
  static auto* const registered = new std::vector<c10::RegistrationHandleRAII>;
  c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
  const c10::OperatorHandle handle = dispatcher.findSchemaOrThrow(name, overload);
  std::string text = handle.getComputedKernelForDispatchKey(c10::DispatchKey::CUDA).debug();
  registered->push_back(
      dispatcher.registerImpl(handle.operator_name(), c10::DispatchKey::CUDA,
                              c10::KernelFunction::makeFromUnboxedRuntimeFunction(function),
                              std::nullopt, nullptr, std::move(text)));
}

}  // namespace
}  // namespace recoup::stand_in

// Call it once per process, instead of stand_in_install_kernels.
RECOUP_STAND_IN_API void stand_in_install_host_only() {
  recoup::stand_in::replace("aten::_slow_conv2d_forward", "", &recoup::stand_in::convolve);
  recoup::stand_in::replace("aten::_slow_conv2d_backward", "output_mask",
                            &recoup::stand_in::convolve_backward);
}
