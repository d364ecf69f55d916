// ProgramMemory: a session's pool as the source of memory for the program.
#pragma once

#include <cstddef>

#include "csrc/cuda/runtime.h"
#include "recoup/types.h"

namespace recoup::detail {

// The allocator of a device asks it. Thread safe.
class ProgramMemory {
 public:
  ProgramMemory() = default;
  virtual ~ProgramMemory() = default;
  ProgramMemory(const ProgramMemory&) = delete;
  ProgramMemory& operator=(const ProgramMemory&) = delete;

  // Whether an allocation of this thread belongs to the session's program.
  [[nodiscard]] virtual bool in_scope(std::size_t nbytes) const = 0;
  // Memory for work on a stream. Throws KernelOutOfMemory.
  [[nodiscard]] virtual void* allocate(std::size_t nbytes, cuda::Stream stream) = 0;
  virtual void free(void* pointer) = 0;
  // Work on the stream uses the memory, which `allocate` has returned.
  virtual void record_stream(void* pointer, cuda::Stream stream) = 0;
  // Whether the session has prepared itself for the capture of a CUDA graph that is under way.
  [[nodiscard]] virtual bool capturing() const = 0;
  // Bytes of the pool that are in use, and that have physical memory. Both may be slightly out of
  // date, and are known only for a backend with Capabilities::reports_use.
  [[nodiscard]] virtual Bytes used() const = 0;
  [[nodiscard]] virtual Bytes reserved() const = 0;
};

}  // namespace recoup::detail
