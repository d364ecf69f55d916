// BlockIo: reads and writes of a file that go on beside each other, one a buffer.
#pragma once

#include <cstdint>
#include <memory>

namespace recoup::detail {

class BlockIo {
 public:
  // `bytes`: so many were read or written; below 0: -errno.
  struct Done {
    int buffer = 0;
    std::int64_t bytes = 0;
  };

  virtual ~BlockIo() = default;

  // `memory` is left alone until it is done. Not more than one at a time for each buffer.
  virtual void read(int buffer, int file, void* memory, std::int64_t size, std::int64_t at) = 0;
  virtual void write(int buffer, int file, const void* memory, std::int64_t size,
                     std::int64_t at) = 0;
  // Waits for one of those that were begun, whichever is first.
  [[nodiscard]] virtual Done wait() = 0;
};

// Through io_uring; null where the system refuses it, or recoup was built without it.
[[nodiscard]] std::unique_ptr<BlockIo> make_uring_io(int buffers);
// By calls that wait.
[[nodiscard]] std::unique_ptr<BlockIo> make_plain_io();

}  // namespace recoup::detail
