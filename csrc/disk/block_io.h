// BlockIo: concurrent reads and writes of a file, one per buffer.
#pragma once

#include <cstdint>
#include <memory>

namespace recoup::detail {

class BlockIo {
 public:
  // `bytes`: number of bytes that were read or written; negative: -errno.
  struct Done {
    int buffer = 0;
    std::int64_t bytes = 0;
  };

  virtual ~BlockIo() = default;

  // `memory` must not be changed until the operation is done. At most one operation at a time per
  // buffer.
  virtual void read(int buffer, int file, void* memory, std::int64_t size, std::int64_t at) = 0;
  virtual void write(int buffer, int file, const void* memory, std::int64_t size,
                     std::int64_t at) = 0;
  // Waits until any operation is done.
  [[nodiscard]] virtual Done wait() = 0;
};

// Uses io_uring; null if the system refuses it or recoup was built without it.
[[nodiscard]] std::unique_ptr<BlockIo> make_uring_io(int buffers);
// Uses blocking calls.
[[nodiscard]] std::unique_ptr<BlockIo> make_plain_io();

}  // namespace recoup::detail
