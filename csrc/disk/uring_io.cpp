#include "csrc/disk/block_io.h"

#if __has_include(<liburing.h>) && defined(RECOUP_WITH_URING)
#include <liburing.h>

#include <cerrno>
#include <chrono>
#include <memory>
#include <thread>

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
    const auto prepare = [=](io_uring_sqe* entry) {
      io_uring_prep_read(entry, file, memory, static_cast<unsigned>(size),
                         static_cast<std::uint64_t>(at));
    };
    start(buffer, prepare, [=](BlockIo& plain) { plain.read(buffer, file, memory, size, at); });
  }
  void write(int buffer, int file, const void* memory, std::int64_t size,
             std::int64_t at) override {
    const auto prepare = [=](io_uring_sqe* entry) {
      io_uring_prep_write(entry, file, memory, static_cast<unsigned>(size),
                          static_cast<std::uint64_t>(at));
    };
    start(buffer, prepare, [=](BlockIo& plain) { plain.write(buffer, file, memory, size, at); });
  }
  Done wait() override {
    if (done_plainly_ > 0) {
      --done_plainly_;
      return plain_->wait();
    }
    io_uring_cqe* entry = nullptr;
    while (const int error = plain_ ? peek(&entry) : io_uring_wait_cqe(&ring_, &entry)) {
      RECOUP_CHECK(error == -EINTR || error == -EAGAIN, "waiting for the disk failed: ", -error);
    }
    const Done done{.buffer = static_cast<int>(io_uring_cqe_get_data64(entry)),
                    .bytes = entry->res};
    io_uring_cqe_seen(&ring_, entry);
    return done;
  }

 private:
  template <class Prepare, class Plainly>
  void start(int buffer, Prepare&& prepare, Plainly&& plainly) {
    if (plain_ || !submit(buffer, prepare)) {
      plainly(*plain_);
      ++done_plainly_;
    }
  }
  // False: the system has refused it. The refused entry stays in the ring, and would be submitted
  // with the next one. So the ring is not used again.
  template <class Prepare>
  [[nodiscard]] bool submit(int buffer, Prepare&& prepare) {
    // The ring has as many entries as there are buffers.
    io_uring_sqe* const entry = io_uring_get_sqe(&ring_);
    RECOUP_CHECK(entry != nullptr);
    prepare(entry);
    io_uring_sqe_set_data64(entry, static_cast<__u64>(buffer));
    int submitted = 0;
    do {
      submitted = io_uring_submit(&ring_);
    } while (submitted == -EINTR || submitted == -EAGAIN);
    if (submitted < 0) {
      plain_ = make_plain_io();
    }
    return submitted >= 0;
  }
  // Operations that were submitted before still end, which needs no system call.
  [[nodiscard]] int peek(io_uring_cqe** entry) {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    return io_uring_peek_cqe(&ring_, entry);
  }

  io_uring ring_{};
  const bool usable_;
  std::unique_ptr<BlockIo> plain_;  // used from the first refusal on
  int done_plainly_ = 0;            // number of its operations that `wait` has not returned
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
