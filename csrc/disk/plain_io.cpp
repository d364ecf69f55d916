#include <unistd.h>

#include <cerrno>
#include <deque>

#include "csrc/base/check.h"
#include "csrc/disk/block_io.h"

namespace recoup::detail {
namespace {

template <class Call>
std::int64_t until_not_interrupted(Call&& call) {
  for (;;) {
    const ssize_t done = call();
    if (done >= 0) {
      return done;
    }
    if (errno != EINTR) {
      return -errno;
    }
  }
}

class PlainIo final : public BlockIo {
 public:
  void read(int buffer, int file, void* memory, std::int64_t size, std::int64_t at) override {
    done_.push_back({.buffer = buffer, .bytes = until_not_interrupted([&] {
                                         return pread(file, memory, static_cast<std::size_t>(size),
                                                      at);
                                       })});
  }
  void write(int buffer, int file, const void* memory, std::int64_t size,
             std::int64_t at) override {
    done_.push_back({.buffer = buffer, .bytes = until_not_interrupted([&] {
                                         return pwrite(file, memory, static_cast<std::size_t>(size),
                                                       at);
                                       })});
  }
  Done wait() override {
    RECOUP_CHECK(!done_.empty());
    const Done first = done_.front();
    done_.pop_front();
    return first;
  }

 private:
  std::deque<Done> done_;
};

}  // namespace

std::unique_ptr<BlockIo> make_plain_io() { return std::make_unique<PlainIo>(); }

}  // namespace recoup::detail
