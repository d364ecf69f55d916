// KeptCopies: device memory for copies that are kept while a kernel may have to be undone.
#pragma once

#include "csrc/base/fast_mutex.h"
#include "csrc/cuda/runtime.h"
#include "recoup/types.h"

namespace recoup::detail {

// The memory is of PyTorch's allocator, outside of the budget. The copies of an op are in a buffer,
// which stays allocated for later ops on the same stream. A stream works in order, so a later copy
// may overwrite one that was dropped. A copy that does not fit into the buffer has memory of its
// own. Thread safe.
class KeptCopies {
 public:
  explicit KeptCopies(int device) : device_(device) {}
  ~KeptCopies() { release_buffer(); }
  KeptCopies(const KeptCopies&) = delete;
  KeptCopies& operator=(const KeptCopies&) = delete;

  // Memory for work on the stream; null if there is none.
  [[nodiscard]] void* take(Bytes size, cuda::Stream stream);
  // `memory`: from take(), not null.
  void drop(void* memory);
  // Frees the buffer, so that PyTorch's allocator is as without it. Does nothing while copies are
  // kept.
  void release_buffer();

 private:
  void fit_buffer(cuda::Stream stream);
  void free_buffer();
  [[nodiscard]] bool in_buffer(const void* memory) const {
    return memory >= buffer_ && memory < buffer_ + size_.count();
  }

  const int device_;
  FastMutex mutex_;  // guards the members below
  char* buffer_ = nullptr;
  Bytes size_{0};        // of the buffer
  cuda::Stream stream_;  // of the buffer
  Bytes used_{0};        // bytes at the start of the buffer, for copies
  int kept_ = 0;         // copies, in the buffer and outside of it
  Bytes asked_{0};       // bytes of all copies since the last time that none was kept
  Bytes most_{0};        // the maximum of asked_
};

}  // namespace recoup::detail
