#include "csrc/paging/page_copies.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "csrc/paging/handler_calls.h"

#if __has_include(<liburing.h>) && defined(RECOUP_WITH_URING)
#include <liburing.h>
#endif

namespace recoup::detail {

#if __has_include(<liburing.h>) && defined(RECOUP_WITH_URING)

struct PageCopies::Ring {
  static constexpr int kMostRefused = 1000;
  // The first call also resolves the functions that the handler calls.
  static std::unique_ptr<Ring> make() {
    auto made = std::make_unique<Ring>();
    made->usable = io_uring_queue_init(kMostRuns, &made->ring, 0) == 0;
    if (!made->usable) {
      return nullptr;
    }
    io_uring_sqe* const entry = io_uring_get_sqe(&made->ring);
    io_uring_prep_nop(entry);
    io_uring_sqe_set_data64(entry, 0);
    return made->wait(1) == 0 ? std::move(made) : nullptr;
  }
  Ring() = default;
  ~Ring() {
    if (usable) {
      io_uring_queue_exit(&ring);
    }
  }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  // Submits what was prepared. The number of copies that failed, or were cut short.
  int wait(unsigned count) {
    int failed = 0;
    int refused = 0;
    for (unsigned ended = 0; ended < count;) {
      const int submitted = io_uring_submit_and_wait(&ring, 1);
      if (submitted == -EAGAIN || submitted == -EBUSY) {  // the system lacks memory for it
        constexpr timespec kWait{.tv_sec = 0, .tv_nsec = 1'000'000};
        nanosleep(&kWait, nullptr);
      }
      refused += submitted < 0 && submitted != -EINTR ? 1 : 0;
      if (refused == kMostRefused) {
        give_up("the system refuses copies between memory and disk");
      }
      io_uring_cqe* entry = nullptr;
      while (io_uring_peek_cqe(&ring, &entry) == 0) {
        failed += entry->res == static_cast<int>(io_uring_cqe_get_data64(entry)) ? 0 : 1;
        io_uring_cqe_seen(&ring, entry);
        ++ended;
      }
    }
    return failed;
  }

  io_uring ring{};
  bool usable = false;
};

// False: not all was copied. One run alone needs no ring.
bool PageCopies::copy_in_ring(Runs runs, bool writes) {
  if (ring_ == nullptr || runs.size() == 1) {
    return false;
  }
  char* at = buffer_;
  for (const Run& run : runs) {
    io_uring_sqe* const entry = io_uring_get_sqe(&ring_->ring);
    const auto size = static_cast<unsigned>(run.size);
    const auto offset = static_cast<__u64>(run.offset);
    if (writes) {
      io_uring_prep_write(entry, disk_, at, size, offset);
    } else {
      io_uring_prep_read(entry, disk_, at, size, offset);
    }
    io_uring_sqe_set_data64(entry, size);
    at += run.size;
  }
  return ring_->wait(static_cast<unsigned>(runs.size())) == 0;
}

#else

struct PageCopies::Ring {
  static std::unique_ptr<Ring> make() { return nullptr; }
};

bool PageCopies::copy_in_ring(Runs, bool) { return false; }

#endif

PageCopies::PageCopies() {
  void* const memory =
      mmap(nullptr, kBuffer, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    throw std::system_error(errno, std::generic_category(),
                            "recoup: no memory for the copies of paged memory");
  }
  buffer_ = static_cast<char*>(memory);
  ring_ = Ring::make();
}

PageCopies::~PageCopies() { munmap(buffer_, kBuffer); }

void PageCopies::use(int memory, int disk, bool direct) {
  memory_ = memory;
  disk_ = disk;
  direct_ = direct;
}

// Calls copy(bytes, run) for each run; `failure`: what ends the process if that is false.
template <class Copy>
void PageCopies::each(Runs runs, const char* failure, Copy&& copy) {
  char* at = buffer_;
  for (const Run& run : runs) {
    if (!copy(at, run)) {
      give_up(failure);
    }
    at += run.size;
  }
}

void PageCopies::from_memory(Runs runs) {
  each(runs, "a block in memory cannot be read", [this](char* bytes, const Run& run) {
    return read_whole(memory_, bytes, run.size, run.offset);
  });
}

void PageCopies::to_memory(Runs runs) {
  each(runs, "the system has no memory for a block", [this](const char* bytes, const Run& run) {
    return write_whole(memory_, bytes, run.size, run.offset);
  });
}

void PageCopies::from_disk(Runs runs) {
  if (!copy_in_ring(runs, false)) {
    each(runs, "the disk of the spill tier cannot be read", [this](char* bytes, const Run& run) {
      return read_whole(disk_, bytes, run.size, run.offset);
    });
  }
  drop_from_page_cache(runs);
}

void PageCopies::to_disk(Runs runs) {
  if (!copy_in_ring(runs, true)) {
    each(runs, "the disk of the spill tier cannot be written",
         [this](const char* bytes, const Run& run) {
           return write_whole(disk_, bytes, run.size, run.offset);
         });
  }
  if (!direct_ && !runs.empty()) {
    fdatasync(disk_);
  }
  drop_from_page_cache(runs);
}

void PageCopies::drop_from_page_cache(Runs runs) const {
  if (!direct_) {
    for (const Run& run : runs) {
      posix_fadvise(disk_, run.offset, run.size, POSIX_FADV_DONTNEED);
    }
  }
}

}  // namespace recoup::detail
