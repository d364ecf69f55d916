// UncapturedStream: a stream of which a thread has found that it is not captured.
#pragma once

#include <optional>
#include <utility>

#include "csrc/cuda/runtime.h"

namespace recoup::detail {

// Note [Captures in kernels]
// In a scope no stream may be captured into a CUDA graph. Backend::require_ready checks the stream
// of an op, and the allocator checks the stream of each request. A kernel of PyTorch's own begins
// no capture. So the allocator does not check again while such a kernel requests memory on the
// stream of its op. Other kernels may begin a capture: those of custom ops and of compiled graphs.
class UncapturedStream {
 public:
  // Of the calling thread during the object's lifetime; nullopt: none.
  explicit UncapturedStream(std::optional<cuda::Stream> stream)
      : was_(std::exchange(current(), stream)) {}
  ~UncapturedStream() { current() = was_; }
  UncapturedStream(const UncapturedStream&) = delete;
  UncapturedStream& operator=(const UncapturedStream&) = delete;

  [[nodiscard]] static std::optional<cuda::Stream>& current() {
    thread_local std::optional<cuda::Stream> stream;
    return stream;
  }

 private:
  const std::optional<cuda::Stream> was_;
};

}  // namespace recoup::detail
