// The device's memory allocator, with the same interface as CUDA's.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>

#include <atomic>
#include <vector>

#include "csrc/torch/gpu/gpus.h"

struct CUstream_st;  // the type of a CUDA stream handle

namespace recoup::test_device {

// Corresponds to c10::cuda::CUDACachingAllocator::CUDAAllocator.
class DeviceAllocator : public c10::DeviceAllocator {
 public:
  virtual void* raw_alloc(std::size_t size) = 0;
  virtual void* raw_alloc_with_stream(std::size_t size, CUstream_st* stream) = 0;
  virtual void raw_delete(void* memory) = 0;
  // Throws c10::Error if `memory` is not the start of allocated memory.
  virtual void* getBaseAllocation(void* memory, std::size_t* size) = 0;
  // Corresponds to snapshot().
  virtual std::vector<detail::OutsideSegment> segments(int device) = 0;
};

// Corresponds to c10::cuda::CUDACachingAllocator::allocator.
std::atomic<DeviceAllocator*>& slot();

// Puts an allocator with per-stream caches, like PyTorch's, into the slot, and registers the slot
// with recoup for decoration. `expandable`: behaves like PyTorch's expandable segments.
void use_caching_allocator(detail::Gpus& gpus, bool expandable);

// Whether the slot still holds that allocator.
bool undecorated();

}  // namespace recoup::test_device
