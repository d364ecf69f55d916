// The GPUs of the process: the driver's interface, the budgets on them, and what is outside.
#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <mutex>
#include <optional>

#include "csrc/cuda/runtime.h"
#include "csrc/cuda/scopes.h"
#include "csrc/torch/gpu/outside_memory.h"
#include "recoup/api.h"

namespace recoup::detail {

// Thread safe. There is one a process at most, which is never destroyed: storages may die after
// static destructors have run.
class RECOUP_API Gpus {
 public:
  // PyTorch's devices of this type have budgets from now on: CUDA, or what stands for it in tests.
  // The caller gives outside memory next. Once in a process; throws std::logic_error the second
  // time.
  static Gpus& install(c10::DeviceType type, std::unique_ptr<cuda::Runtime> runtime);
  void set_outside(std::unique_ptr<OutsideMemory> outside) { outside_ = std::move(outside); }

  [[nodiscard]] c10::DeviceType type() const { return type_; }
  [[nodiscard]] cuda::Runtime& runtime() { return *runtime_; }
  [[nodiscard]] cuda::Scopes& scopes() { return scopes_; }
  [[nodiscard]] OutsideMemory& outside() { return *outside_; }

  // Memory of the budget on the device that the calling thread's requests belong to; null when they
  // belong to none. Throws KernelOutOfMemory, and std::runtime_error when the stream is captured.
  [[nodiscard]] void* allocate(Bytes size, int device, cuda::Stream stream);
  // Whether the address is a budget's, open or left.
  [[nodiscard]] bool owns(const void* memory) const;
  // False when it is no budget's; then nothing has happened, here and below.
  bool free(void* memory);
  bool record_stream(void* memory, void* stream);
  // Whether the calling thread's requests belong to a budget on the device.
  [[nodiscard]] bool in_budget(int device) const;
  // Throws std::runtime_error when they do: what a memory pool is filled with must not move.
  void require_no_budget(int device) const;
  // Memory of two devices, one of them a budget's: see Runtime::copy_between. False when neither is
  // a budget's.
  bool copy_between(cuda::Stream stream, void* to, int to_device, const void* from, int from_device,
                    Bytes size);

  // Whether it is of outside memory, or of a budget that was left.
  [[nodiscard]] bool is_outside(const c10::DataPtr& data);
  // What the driver has given on the device for tensors that are not of the open budget.
  [[nodiscard]] Bytes outside_bytes(int device);

  // A scope begins and ends: see cuda::Scopes. PyTorch's allocator is decorated from the first one
  // until nothing of any is in use.
  void enter(int device, std::shared_ptr<cuda::Scope> scope);
  void leave(int device);

 private:
  Gpus(c10::DeviceType type, std::unique_ptr<cuda::Runtime> runtime)
      : type_(type), runtime_(std::move(runtime)) {}
  void detach_if_unused();

  c10::DeviceType type_;
  std::unique_ptr<cuda::Runtime> runtime_;
  cuda::Scopes scopes_;
  std::unique_ptr<OutsideMemory> outside_;
  std::mutex attaching_;
};

// None before they are installed.
[[nodiscard]] std::optional<c10::DeviceType> gpu_type();
// Only after it.
[[nodiscard]] RECOUP_API Gpus& gpus();

// The deleter of memory that a budget on a GPU has given.
RECOUP_API void gpu_delete(void* memory);

}  // namespace recoup::detail
