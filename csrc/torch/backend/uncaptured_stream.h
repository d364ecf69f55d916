// UncapturedStream: a stream of which a thread has found that it is not captured, and the memory
// for kernels on it.
#pragma once

#include <optional>
#include <utility>

#include "csrc/cuda/runtime.h"
#include "csrc/torch/backend/program_memory.h"

namespace recoup::detail {

// Note [Captures in kernels]
// In a scope no stream may be captured into a CUDA graph, except as Note [Captured graphs] says.
// Backend::require_ready checks the stream of an op, and the allocator checks the stream of each
// request. A kernel of PyTorch's own begins no capture. So the allocator does not check again while
// such a kernel requests memory on the stream of its op, and does not look up the budget of the
// device, since that is the op's. Other kernels may begin a capture: those of custom ops and of
// compiled graphs.
class UncapturedStream {
 public:
  struct Known {
    cuda::Stream stream;
    ProgramMemory* memory;  // of the session whose op runs on the stream
  };
  // Of the calling thread during the object's lifetime; nullopt: none.
  explicit UncapturedStream(const std::optional<Known>& known)
      : was_(std::exchange(current(), known)) {}
  ~UncapturedStream() { current() = was_; }
  UncapturedStream(const UncapturedStream&) = delete;
  UncapturedStream& operator=(const UncapturedStream&) = delete;

  [[nodiscard]] static std::optional<Known>& current() {
    thread_local std::optional<Known> known;
    return known;
  }

 private:
  const std::optional<Known> was_;
};

}  // namespace recoup::detail
