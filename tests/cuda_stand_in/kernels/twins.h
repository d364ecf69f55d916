// Twins: CPU tensors over the bytes of device tensors.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "tests/cuda_stand_in/device/test_interface.h"

namespace recoup::stand_in {

// Whether a twin can be made: for a dense tensor of the device or the host, or an undefined one.
[[nodiscard]] bool has_twin(const at::Tensor& tensor);
[[nodiscard]] bool on_cuda(const at::Tensor& tensor);
// The bytes from the tensor's first element to the end of its last one.
[[nodiscard]] StandInUse bytes_used(const at::Tensor& tensor, bool write);

// The memory of the twins of an op's arguments and results.
struct TwinMemory {
  std::vector<StandInUse> uses;                            // on the device
  std::vector<std::shared_ptr<std::vector<char>>> copies;  // copies of host memory
};

// The twin of a device tensor shares its bytes; that of a host tensor has a copy.
[[nodiscard]] at::Tensor twin_of(TwinMemory& memory, const at::Tensor& tensor, bool write);
// Makes twins of all contained tensors; a CUDA device becomes the CPU.
[[nodiscard]] c10::IValue twin_of(TwinMemory& memory, const c10::IValue& value, bool write);

template <class Function>
void for_each_tensor(const c10::IValue& value, const Function& function) {
  if (value.isTensor()) {
    function(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) {
      function(tensor);
    }
  } else if (value.isOptionalTensorList()) {
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
      if (tensor) {
        function(*tensor);
      }
    }
  }
}

}  // namespace recoup::stand_in
