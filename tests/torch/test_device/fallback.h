// Kernels of the device: CPU kernels run on CPU tensors over the same bytes.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

namespace recoup::test_device {

// Twins: CPU tensors that stand for the tensors of one call. They have version counters of their
// own and share the bytes. Twins of tensors that share a storage share one, too.
class Twins {
 public:
  [[nodiscard]] at::Tensor lower(const at::Tensor& tensor);
  [[nodiscard]] c10::IValue lower(const c10::IValue& value);
  // Converts a result: returns the device tensor of a twin, a view of the device storage for a view
  // of a twin, and otherwise a copy in new memory of the current device, written asynchronously.
  [[nodiscard]] at::Tensor raise(const at::Tensor& tensor);
  [[nodiscard]] c10::IValue raise(const c10::IValue& value);

  // Waits for the streams of the tensors' devices; after that kernels may access the bytes.
  void wait() const;
  // Applies changes of size that the kernel made to its outputs.
  void write_back() const;
  // The devices of the tensors, in ascending order.
  [[nodiscard]] const std::set<c10::DeviceIndex>& devices() const { return devices_; }

 private:
  struct StoragePair {
    c10::Storage device;
    c10::Storage cpu;
    const void* data;
  };

  c10::Storage lower(const c10::Storage& storage);
  c10::Storage raise(const c10::Storage& storage);

  std::vector<std::pair<at::Tensor, at::Tensor>> tensors_;  // (device tensor, CPU tensor)
  std::unordered_map<c10::TensorImpl*, std::size_t> by_tensor_;
  std::vector<StoragePair> storages_;
  std::unordered_map<c10::StorageImpl*, std::size_t> by_storage_;  // for both storages of a pair
  std::unordered_map<c10::StorageImpl*, c10::Storage> raised_;
  std::set<c10::StorageImpl*> of_cpu_arguments_;
  std::set<c10::DeviceIndex> devices_;
};

void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack);
// Registers the fallback for all ops that have a CPU kernel and no kernel here. So they arrive as
// on CUDA, and PyTorch does not decompose them as for a device without kernels.
void register_fallback();

// Kernels on CPU tensors for ops that only devices have; null for other ops.
using CpuKernel = void (*)(torch::jit::Stack& stack);
CpuKernel kernel_of_devices_only(const c10::OperatorHandle& op);
const std::vector<const char*>& ops_of_devices_only();
// Whether result number `result` of such an op stays on the CPU, as with CUDA.
bool stays_on_cpu(const c10::OperatorHandle& op, std::size_t result);

// Excludes autograd, autocast and recoup's observer for its lifetime: the ops run by a kernel are
// not the program's.
struct Unseen {
  Unseen();

 private:
  c10::impl::ExcludeDispatchKeyGuard guard_;
};

}  // namespace recoup::test_device
