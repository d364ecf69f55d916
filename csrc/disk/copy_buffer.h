// CopyBuffer: memory for copies between the disk and the pool.
#pragma once

#include <sys/mman.h>

#include <cstdint>
#include <memory>
#include <new>

namespace recoup::detail {

// Returns a buffer to the system.
class FreeCopyBuffer {
 public:
  explicit FreeCopyBuffer(std::int64_t size = 0) : size_(size) {}
  void operator()(void* memory) const noexcept { munmap(memory, static_cast<std::size_t>(size_)); }

 private:
  std::int64_t size_;  // bytes
};

using CopyBuffer = std::unique_ptr<void, FreeCopyBuffer>;

// Maps `size` zero bytes in whole pages, because the heap would keep some of them when they are
// freed. A forked child does not inherit them; otherwise the kernel would copy a page that a disk
// is writing to. Throws std::bad_alloc.
inline CopyBuffer make_copy_buffer(std::int64_t size) {
  const auto bytes = static_cast<std::size_t>(size);
  void* const memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    throw std::bad_alloc();
  }
  CopyBuffer buffer(memory, FreeCopyBuffer(size));
  madvise(memory, bytes, MADV_DONTFORK);
  return buffer;
}

}  // namespace recoup::detail
