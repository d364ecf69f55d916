// Device memory: the allocator of the device, of the shape of CUDA's.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>

#include <atomic>

#include "csrc/torch/gpu/gpus.h"

struct CUstream_st;  // what a stream's handle is on CUDA

namespace recoup::test_device {

// As c10::cuda::CUDACachingAllocator::CUDAAllocator.
class DeviceAllocator : public c10::DeviceAllocator {
 public:
  virtual void* raw_alloc(std::size_t size) = 0;
  virtual void* raw_alloc_with_stream(std::size_t size, CUstream_st* stream) = 0;
  virtual void raw_delete(void* memory) = 0;
  // Throws c10::Error for what is not the start of memory in use.
  virtual void* getBaseAllocation(void* memory, std::size_t* size) = 0;
};

// As c10::cuda::CUDACachingAllocator::allocator.
std::atomic<DeviceAllocator*>& slot();

// Fills the slot with an allocator that caches per stream, as PyTorch's does, and gives it to
// recoup as what it decorates. `expandable` is as with PyTorch's expandable segments.
void use_caching_allocator(detail::Gpus& gpus, bool expandable);

// Whether the slot holds what it was filled with.
bool undecorated();

}  // namespace recoup::test_device
