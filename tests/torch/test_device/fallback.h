// The kernels: tensors of the CPU over the same bytes go through the kernels of the CPU.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

namespace recoup::test_device {

// Tensors of one call and what stands for them on the CPU: other tensors, with version counters of
// their own, over the same bytes. Tensors that share a storage share one there too.
class Twins {
 public:
  [[nodiscard]] at::Tensor lower(const at::Tensor& tensor);
  [[nodiscard]] c10::IValue lower(const c10::IValue& value);
  // A result: the device's tensor for a twin, a view of the device's storage for a view of one, and
  // for what is new a copy in new memory of the current device, which arrives late.
  [[nodiscard]] at::Tensor raise(const at::Tensor& tensor);
  [[nodiscard]] c10::IValue raise(const c10::IValue& value);

  // Kernels read and write from here on.
  void wait() const;
  // Outputs that the kernel resized.
  void write_back() const;
  // Those of the tensors, in ascending order.
  [[nodiscard]] const std::set<c10::DeviceIndex>& devices() const { return devices_; }

 private:
  struct StoragePair {
    c10::Storage device;
    c10::Storage cpu;
    const void* data;
  };

  c10::Storage lower(const c10::Storage& storage);
  c10::Storage raise(const c10::Storage& storage);

  std::vector<std::pair<at::Tensor, at::Tensor>> tensors_;  // the device's, the CPU's
  std::unordered_map<c10::TensorImpl*, std::size_t> by_tensor_;
  std::vector<StoragePair> storages_;
  std::unordered_map<c10::StorageImpl*, std::size_t> by_storage_;  // by either
  std::unordered_map<c10::StorageImpl*, c10::Storage> raised_;
  std::set<c10::StorageImpl*> of_cpu_arguments_;
  std::set<c10::DeviceIndex> devices_;
};

void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack);
// For all ops that have a kernel of the CPU and none here: they arrive as they do on CUDA, before
// PyTorch takes them apart for a device that lacks them.
void register_fallback();

// For ops that only devices have: what runs on the CPU's tensors. Null: the op's own kernel.
using CpuKernel = void (*)(torch::jit::Stack& stack);
CpuKernel kernel_of_devices_only(const c10::OperatorHandle& op);
const std::vector<const char*>& ops_of_devices_only();
// Whether the result of such an op stays on the CPU, as CUDA's does.
bool stays_on_cpu(const c10::OperatorHandle& op, std::size_t result);

// What runs below is none of the program's: no autograd, no autocast, nobody watches.
struct Unseen {
  Unseen();

 private:
  c10::impl::ExcludeDispatchKeyGuard guard_;
};

}  // namespace recoup::test_device
