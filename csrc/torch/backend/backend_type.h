// BackendType: a type of devices on which budgets are possible, and its dispatch keys.
#pragma once

#include <c10/core/DeviceType.h>
#include <c10/core/DispatchKey.h>
#include <c10/core/DispatchKeySet.h>

#include <algorithm>
#include <iterator>
#include <span>

namespace recoup::detail {

// What is known before there is a budget on such a device, and without its driver.
struct BackendType {
  c10::DeviceType type;
  c10::DispatchKey dense;     // of kernels for plain tensors
  c10::DispatchKey autograd;  // of autograd for these tensors
  // The keys of the kernels that PyTorch itself has, in all layouts. Empty: another library has all
  // kernels.
  std::span<const c10::DispatchKey> kernels;
};

inline constexpr c10::DispatchKey kKernelsOfCpu[] = {
    c10::DispatchKey::CPU,       c10::DispatchKey::QuantizedCPU,
    c10::DispatchKey::SparseCPU, c10::DispatchKey::SparseCsrCPU,
    c10::DispatchKey::MkldnnCPU, c10::DispatchKey::NestedTensorCPU,
};
inline constexpr c10::DispatchKey kKernelsOfCuda[] = {
    c10::DispatchKey::CUDA,
    c10::DispatchKey::QuantizedCUDA,
    c10::DispatchKey::SparseCUDA,
    c10::DispatchKey::SparseCsrCUDA,
    c10::DispatchKey::NestedTensorCUDA,
};

inline constexpr BackendType kBackendTypes[] = {
    {.type = c10::DeviceType::CPU,
     .dense = c10::DispatchKey::CPU,
     .autograd = c10::DispatchKey::AutogradCPU,
     .kernels = kKernelsOfCpu},
    {.type = c10::DeviceType::CUDA,
     .dense = c10::DispatchKey::CUDA,
     .autograd = c10::DispatchKey::AutogradCUDA,
     .kernels = kKernelsOfCuda},
    {.type = c10::DeviceType::PrivateUse1,
     .dense = c10::DispatchKey::PrivateUse1,
     .autograd = c10::DispatchKey::AutogradPrivateUse1,
     .kernels = {}},
};
inline constexpr const BackendType& kCpu = kBackendTypes[0];

// Null for a type without budgets.
[[nodiscard]] inline const BackendType* find_backend_type(c10::DeviceType type) {
  const BackendType* const found =
      std::find_if(std::begin(kBackendTypes), std::end(kBackendTypes),
                   [type](const BackendType& each) { return each.type == type; });
  return found == std::end(kBackendTypes) ? nullptr : found;
}

// The row of a type; else the CPU's.
[[nodiscard]] inline const BackendType& backend_type(c10::DeviceType type) {
  const BackendType* const found = find_backend_type(type);
  return found == nullptr ? kCpu : *found;
}

// The type whose kernels a call with these keys reaches; that of the CPU for a type without
// budgets.
[[nodiscard]] inline const BackendType& backend_type_of(c10::DispatchKeySet keys) {
  const c10::BackendComponent highest = keys.highestBackendKey();
  const BackendType* const found = std::find_if(
      std::begin(kBackendTypes), std::end(kBackendTypes), [highest](const BackendType& each) {
        return c10::toBackendComponent(each.dense) == highest;
      });
  return found == std::end(kBackendTypes) ? kCpu : *found;
}

}  // namespace recoup::detail
