// Memory that copies between the disk and the pool pass through.
#pragma once

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

namespace recoup::detail {

// Frees a buffer; before that, the children of a fork get it again.
class FreeCopyBuffer {
 public:
  explicit FreeCopyBuffer(std::int64_t size = 0) : size_(size) {}
  void operator()(void* memory) const noexcept {
    madvise(memory, static_cast<std::size_t>(size_), MADV_DOFORK);
    std::free(memory);
  }

 private:
  std::int64_t size_;  // bytes
};

using CopyBuffer = std::unique_ptr<void, FreeCopyBuffer>;

// Allocates `size` zero bytes at a multiple of `alignment`. The child of a fork does not get them:
// the kernel would copy a page that a disk is writing to. Throws std::bad_alloc.
inline CopyBuffer make_copy_buffer(std::int64_t alignment, std::int64_t size) {
  const auto bytes = static_cast<std::size_t>(size);
  CopyBuffer buffer(std::aligned_alloc(static_cast<std::size_t>(alignment), bytes),
                    FreeCopyBuffer(size));
  if (!buffer) {
    throw std::bad_alloc();
  }
  std::memset(buffer.get(), 0, bytes);
  madvise(buffer.get(), bytes, MADV_DONTFORK);
  return buffer;
}

}  // namespace recoup::detail
