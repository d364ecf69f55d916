// The GPUs of the process: the driver's interface, the budgets, and the memory outside of budgets.
#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <mutex>
#include <utility>

#include "csrc/cuda/link_speed.h"
#include "csrc/cuda/runtime.h"
#include "csrc/cuda/scopes.h"
#include "csrc/torch/gpu/measured.h"
#include "csrc/torch/gpu/outside_memory.h"
#include "recoup/api.h"

namespace recoup::detail {

// Thread safe. At most one object per process, which is never destroyed: storages may die after
// static destructors have run.
class RECOUP_API Gpus {
 public:
  // For install_gpus(). Throws std::logic_error on a second call in a process.
  static Gpus& install(c10::DeviceType type, std::unique_ptr<cuda::Runtime> runtime);
  void set_outside(std::unique_ptr<OutsideMemory> outside) { outside_ = std::move(outside); }

  [[nodiscard]] c10::DeviceType type() const { return type_; }
  [[nodiscard]] cuda::Runtime& runtime() { return *runtime_; }
  [[nodiscard]] cuda::Scopes& scopes() { return scopes_; }
  [[nodiscard]] OutsideMemory& outside() { return *outside_; }

  // Time in nanoseconds per byte of a move within a device, by device index.
  [[nodiscard]] Measured<int, double>& move_speeds() { return move_speeds_; }
  // By device index, and bytes of each long copy of the measurement.
  [[nodiscard]] Measured<std::pair<int, Bytes>, cuda::LinkSpeed>& link_speeds() {
    return link_speeds_;
  }

  // Memory of the budget on the device that gets the calling thread's requests; null if there is
  // none. Throws KernelOutOfMemory, and std::runtime_error if the stream is being captured.
  [[nodiscard]] void* allocate(Bytes size, int device, cuda::Stream stream);
  // Whether the address belongs to a budget, open or left.
  [[nodiscard]] bool owns(const void* memory) const;
  // False if no budget owns the memory; then nothing has happened. The same holds for
  // record_stream.
  bool free(void* memory);
  bool record_stream(void* memory, void* stream);
  // Whether a budget on the device gets the calling thread's requests.
  [[nodiscard]] bool in_budget(int device) const;
  // Throws std::runtime_error if one does, unless it has prepared itself for a capture: the
  // contents of a memory pool must not move.
  void require_no_budget(int device) const;
  // Copies between two devices if a budget owns one of the ranges: see Runtime::copy_between. False
  // if none does.
  bool copy_between(cuda::Stream stream, void* to, int to_device, const void* from, int from_device,
                    Bytes size);

  // Whether the memory is outside memory, or of a budget that was left.
  [[nodiscard]] bool is_outside(const c10::DataPtr& data);
  // Bytes that the driver has given on the device for tensors outside of its open budget.
  [[nodiscard]] Bytes outside_bytes(int device);

  // Begin and end of a scope: see cuda::Scopes. PyTorch's allocator is decorated from the first
  // scope on, until all memory of all scopes is unused.
  void enter(int device, std::shared_ptr<cuda::Scope> scope);
  void leave(int device);
  void end_capture();

 private:
  Gpus(c10::DeviceType type, std::unique_ptr<cuda::Runtime> runtime)
      : type_(type), runtime_(std::move(runtime)) {}
  void detach_if_unused();

  c10::DeviceType type_;
  std::unique_ptr<cuda::Runtime> runtime_;
  cuda::Scopes scopes_;
  std::unique_ptr<OutsideMemory> outside_;
  std::mutex attaching_;
  Measured<int, double> move_speeds_;
  Measured<std::pair<int, Bytes>, cuda::LinkSpeed> link_speeds_;
};

// To be called after install_gpus() only.
[[nodiscard]] RECOUP_API Gpus& gpus();

// The deleter of memory that a budget on a GPU has given.
RECOUP_API void gpu_delete(void* memory);

}  // namespace recoup::detail
