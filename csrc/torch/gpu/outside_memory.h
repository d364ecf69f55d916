// Memory on GPUs that is no budget's: that of PyTorch's own allocator.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Stream.h>

#include "csrc/cuda/runtime.h"

namespace recoup::detail {

// Thread safe. What the driver refuses is thrown as std::runtime_error.
class OutsideMemory {
 public:
  virtual ~OutsideMemory() = default;

  // From now on the requests of scopes are asked for; called again while they are it does nothing.
  virtual void attach() = 0;
  // PyTorch is as it was: no scope is open, and nothing of one is in use.
  virtual void detach() = 0;
  // What storages that grow inside of a scope should ask, which may keep the allocator that they
  // were made with; null: they need no other.
  [[nodiscard]] virtual c10::Allocator* allocator_in_scopes() = 0;

  // For work on `stream` of the device; null when the device has no more.
  [[nodiscard]] virtual void* allocate(Bytes size, int device, cuda::Stream stream) = 0;
  virtual void free(void* memory) = 0;
  // Whether this gave the memory. It may not know memory of its own that somebody else wrapped.
  [[nodiscard]] virtual bool owns(const c10::DataPtr& data) = 0;
  // Work on the stream uses the memory. What this has not given is left alone.
  virtual void record_stream(void* memory, const c10::Stream& stream) = 0;
  // Gives what no tensor uses back to the driver.
  virtual void empty_cache() = 0;

  struct Usage {
    Bytes reserved;  // given by the driver
    Bytes used;
  };
  [[nodiscard]] virtual Usage usage(int device) = 0;
  // Recounts everything; throws InternalError on the first difference.
  virtual void check() {}
};

}  // namespace recoup::detail
