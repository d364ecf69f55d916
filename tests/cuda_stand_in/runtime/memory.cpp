// Memory of the device and of the host.
#include <cstring>

#include "tests/cuda_stand_in/runtime/call.h"

namespace {

using recoup::stand_in::Block;
using recoup::stand_in::BlockKind;
using recoup::stand_in::current_device;
using recoup::stand_in::machine;
using recoup::stand_in::Outcome;

// As CUDA does before it frees memory, this waits for all work.
void wait_and_forget(const void* memory, const char* function) {
  machine().streams.wait_for_device(-1);
  if (const std::optional<Block> block = machine().memory.block_at(memory)) {
    machine().streams.forget(memory, block->size, function);
  }
}

}  // namespace

RECOUP_CUDA_API cudaError_t cudaMalloc(void** memory, std::size_t size) {
  RECOUP_BEGIN();
  RECOUP_REQUIRE_NO_CAPTURE();
  *memory = size == 0 ? nullptr : machine().memory.allocate(current_device(), size);
  if (*memory == nullptr && size > 0) {
    RECOUP_FAIL(cudaErrorMemoryAllocation);
  }
  return cudaSuccess;
}

RECOUP_CUDA_API cudaError_t cudaFree(void* memory) {
  RECOUP_BEGIN();
  RECOUP_REQUIRE_NO_CAPTURE();
  if (memory == nullptr) {
    return cudaSuccess;
  }
  wait_and_forget(memory, __func__);
  if (machine().memory.release(memory) != Outcome::kDone) {
    RECOUP_FAIL(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}

// The driver's pools allocate at once and free in stream order.
RECOUP_CUDA_API cudaError_t cudaMallocAsync(void** memory, std::size_t size, cudaStream_t stream) {
  RECOUP_BEGIN();
  RECOUP_STREAM(on, stream);
  *memory = size == 0 ? nullptr : machine().memory.allocate(on->device, size);
  if (*memory == nullptr && size > 0) {
    RECOUP_FAIL(cudaErrorMemoryAllocation);
  }
  return cudaSuccess;
}

RECOUP_CUDA_API cudaError_t cudaFreeAsync(void* memory, cudaStream_t stream) {
  RECOUP_BEGIN();
  RECOUP_STREAM(on, stream);
  const std::optional<Block> block = machine().memory.block_at(memory);
  if (!block || block->kind != BlockKind::kDevice) {
    RECOUP_FAIL(cudaErrorInvalidValue);
  }
  recoup::stand_in::Task task;
  task.what = __func__;
  task.uses.push_back({.memory = memory, .size = block->size, .write = true, .what = __func__});
  task.work = [memory] { machine().memory.release(memory); };
  machine().streams.push(on, std::move(task));
  return cudaSuccess;
}

RECOUP_CUDA_API cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  RECOUP_BEGIN();
  *total = machine().memory.limit();
  *free = *total - machine().memory.used(current_device());
  return cudaSuccess;
}

RECOUP_CUDA_API cudaError_t cudaHostAlloc(void** memory, std::size_t size, unsigned /*flags*/) {
  RECOUP_BEGIN();
  RECOUP_REQUIRE_NO_CAPTURE();
  *memory = machine().memory.pin(current_device(), size);
  if (*memory == nullptr) {
    RECOUP_FAIL(cudaErrorMemoryAllocation);
  }
  return cudaSuccess;
}

RECOUP_CUDA_API cudaError_t cudaMallocHost(void** memory, std::size_t size) {
  return cudaHostAlloc(memory, size, cudaHostAllocDefault);
}

RECOUP_CUDA_API cudaError_t cudaFreeHost(void* memory) {
  RECOUP_BEGIN();
  if (memory == nullptr) {
    return cudaSuccess;
  }
  wait_and_forget(memory, __func__);
  if (machine().memory.unpin(memory) != Outcome::kDone) {
    RECOUP_FAIL(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}

RECOUP_CUDA_API cudaError_t cudaHostRegister(void* memory, std::size_t size, unsigned /*flags*/) {
  RECOUP_BEGIN();
  if (machine().memory.add_registered(current_device(), memory, size) != Outcome::kDone) {
    RECOUP_FAIL(cudaErrorHostMemoryAlreadyRegistered);
  }
  return cudaSuccess;
}

RECOUP_CUDA_API cudaError_t cudaHostUnregister(void* memory) {
  RECOUP_BEGIN();
  wait_and_forget(memory, __func__);
  if (machine().memory.remove_registered(memory) != Outcome::kDone) {
    RECOUP_FAIL(cudaErrorHostMemoryNotRegistered);
  }
  return cudaSuccess;
}

RECOUP_CUDA_API cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes,
                                                     const void* memory) {
  RECOUP_BEGIN();
  std::memset(attributes, 0, sizeof *attributes);
  attributes->type = cudaMemoryTypeUnregistered;
  attributes->device = -2;
  if (const auto mapping = machine().memory.mapping_at(memory)) {
    attributes->type = cudaMemoryTypeDevice;
    attributes->device = mapping->device;
    attributes->devicePointer = const_cast<void*>(memory);
  } else if (recoup::stand_in::is_device(memory)) {
    RECOUP_FAIL(cudaErrorInvalidValue);
  } else if (machine().memory.is_pinned(memory)) {
    attributes->type = cudaMemoryTypeHost;
    attributes->device = machine().memory.block_at(memory)->device;
    attributes->devicePointer = const_cast<void*>(memory);
    attributes->hostPointer = const_cast<void*>(memory);
  }
  return cudaSuccess;
}

// A handle stores the address; another process cannot open it.
RECOUP_CUDA_API cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* memory) {
  RECOUP_BEGIN();
  std::memset(handle, 0, sizeof *handle);
  std::memcpy(handle, &memory, sizeof memory);
  return cudaSuccess;
}

RECOUP_CUDA_API cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t* handle,
                                                  cudaEvent_t /*event*/) {
  RECOUP_BEGIN();
  std::memset(handle, 0, sizeof *handle);
  return cudaSuccess;
}

RECOUP_CUDA_API cudaError_t cudaIpcCloseMemHandle(void* /*memory*/) { return cudaSuccess; }

// ---- the driver's pools: only what PyTorch calls if it does not use them ----
RECOUP_CUDA_API cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  RECOUP_BEGIN();
  *pool = reinterpret_cast<cudaMemPool_t>(static_cast<std::uintptr_t>(device + 1));
  return cudaSuccess;
}

RECOUP_CUDA_API cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t /*pool*/,
                                                    cudaMemPoolAttr /*which*/, void* value) {
  std::memset(value, 0, sizeof(std::uint64_t));
  return cudaSuccess;
}

RECOUP_CUDA_API cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t /*pool*/,
                                                    cudaMemPoolAttr /*which*/, void* /*value*/) {
  return cudaSuccess;
}

RECOUP_CUDA_API cudaError_t cudaMemPoolSetAccess(cudaMemPool_t /*pool*/,
                                                 const cudaMemAccessDesc* /*accesses*/,
                                                 std::size_t /*count*/) {
  return cudaSuccess;
}

RECOUP_CUDA_API cudaError_t cudaMemPoolTrimTo(cudaMemPool_t /*pool*/, std::size_t /*size*/) {
  return cudaSuccess;
}

RECOUP_CUDA_API cudaError_t cudaDeviceGetGraphMemAttribute(int /*device*/,
                                                           cudaGraphMemAttributeType /*which*/,
                                                           void* value) {
  std::memset(value, 0, sizeof(std::uint64_t));
  return cudaSuccess;
}

RECOUP_CUDA_API cudaError_t cudaDeviceSetGraphMemAttribute(int /*device*/,
                                                           cudaGraphMemAttributeType /*which*/,
                                                           void* /*value*/) {
  return cudaSuccess;
}
