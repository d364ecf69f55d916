// GPU memory outside of budgets: that of PyTorch's own allocator.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Stream.h>

#include <optional>
#include <vector>

#include "csrc/cuda/outside_segment.h"
#include "csrc/cuda/runtime.h"

namespace recoup::detail {

// Thread safe. Errors of the driver are thrown as std::runtime_error.
class OutsideMemory {
 public:
  virtual ~OutsideMemory() = default;

  // Routes requests of scopes to their budgets from now on. Does nothing if they are routed
  // already.
  virtual void attach() = 0;
  // Restores PyTorch's allocator. To be called when no scope is open and no memory of one is in
  // use.
  virtual void detach() = 0;
  // The allocator for storages that grow inside of a scope, which may have kept the one that made
  // them; null if they need no other.
  [[nodiscard]] virtual c10::Allocator* allocator_in_scopes() = 0;

  // Memory for work on `stream` of the device; null if the device has no more.
  [[nodiscard]] virtual void* allocate(Bytes size, int device, cuda::Stream stream) = 0;
  virtual void free(void* memory) = 0;
  // Whether this allocator gave the memory. May be false for its own memory if other code wrapped
  // it.
  [[nodiscard]] virtual bool owns(const c10::DataPtr& data) = 0;
  // Notes that work on the stream uses the memory. Ignores memory that this allocator has not
  // given.
  virtual void record_stream(void* memory, const c10::Stream& stream) = 0;
  // Returns unused memory to the driver.
  virtual void empty_cache() = 0;

  struct Usage {
    Bytes reserved;  // given by the driver
    Bytes used;
  };
  [[nodiscard]] virtual Usage usage(int device) = 0;
  // The segments on the device. nullopt if they are unknown, or if a CUDA graph may hold addresses.
  [[nodiscard]] virtual std::optional<std::vector<OutsideSegment>> segments(int device) = 0;
  // Recounts everything; throws InternalError on the first difference.
  virtual void check() {}
};

}  // namespace recoup::detail
