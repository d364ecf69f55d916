#include "csrc/disk/block_io.h"

#if __has_include(<liburing.h>) && defined(RECOUP_WITH_URING)
#include <liburing.h>

#include <cerrno>
#include <deque>

#include "csrc/base/check.h"

namespace recoup::detail {
namespace {

class UringIo final : public BlockIo {
 public:
  // Does not throw: `usable` tells whether there is a ring.
  explicit UringIo(int buffers)
      : usable_(io_uring_queue_init(static_cast<unsigned>(buffers), &ring_, 0) == 0) {}
  ~UringIo() override {
    if (usable_) {
      io_uring_queue_exit(&ring_);
    }
  }
  UringIo(const UringIo&) = delete;
  UringIo& operator=(const UringIo&) = delete;

  [[nodiscard]] bool usable() const { return usable_; }

  void read(int buffer, int file, void* memory, std::int64_t size, std::int64_t at) override {
    io_uring_sqe* const entry = next_entry();
    io_uring_prep_read(entry, file, memory, static_cast<unsigned>(size),
                       static_cast<std::uint64_t>(at));
    submit(entry, buffer);
  }
  void write(int buffer, int file, const void* memory, std::int64_t size,
             std::int64_t at) override {
    io_uring_sqe* const entry = next_entry();
    io_uring_prep_write(entry, file, memory, static_cast<unsigned>(size),
                        static_cast<std::uint64_t>(at));
    submit(entry, buffer);
  }
  Done wait() override {
    if (!refused_.empty()) {
      const Done first = refused_.front();
      refused_.pop_front();
      return first;
    }
    io_uring_cqe* entry = nullptr;
    int error = 0;
    do {
      error = io_uring_wait_cqe(&ring_, &entry);
    } while (error == -EINTR);
    RECOUP_CHECK(error == 0, "waiting for the disk failed: ", -error);
    const Done done{.buffer = static_cast<int>(io_uring_cqe_get_data64(entry)),
                    .bytes = entry->res};
    io_uring_cqe_seen(&ring_, entry);
    return done;
  }

 private:
  // The ring has as many entries as there are buffers.
  io_uring_sqe* next_entry() {
    io_uring_sqe* const entry = io_uring_get_sqe(&ring_);
    RECOUP_CHECK(entry != nullptr);
    return entry;
  }
  void submit(io_uring_sqe* entry, int buffer) {
    io_uring_sqe_set_data64(entry, static_cast<__u64>(buffer));
    int submitted = 0;
    do {
      submitted = io_uring_submit(&ring_);
    } while (submitted == -EINTR || submitted == -EAGAIN);
    if (submitted < 0) {
      refused_.push_back({.buffer = buffer, .bytes = submitted});
    }
  }

  io_uring ring_{};
  const bool usable_;
  std::deque<Done> refused_;
};

}  // namespace

std::unique_ptr<BlockIo> make_uring_io(int buffers) {
  auto io = std::make_unique<UringIo>(buffers);
  return io->usable() ? std::move(io) : nullptr;
}

}  // namespace recoup::detail

#else

namespace recoup::detail {

std::unique_ptr<BlockIo> make_uring_io(int /*buffers*/) { return nullptr; }

}  // namespace recoup::detail

#endif
