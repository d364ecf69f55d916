// The layout of the file by which processes share a budget, and its two locks.
#pragma once

#include <pthread.h>
#include <sys/file.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string>
#include <system_error>

#include "csrc/base/check.h"

namespace recoup::detail {

// Changes with the layout of the file.
inline constexpr std::uint64_t kShareFormat = 0x7265636f75700001;
inline constexpr std::size_t kShareRows = 256;

// One process. Sizes are in bytes, times in nanoseconds of the steady clock.
struct ShareRow {
  std::int64_t process;  // 0: the row is free
  std::uint64_t start;   // see start_of; 0: unknown
  std::int64_t part;
  std::int64_t workers;
  std::int64_t demand;
  std::int64_t needs;
  std::int64_t needs_since;
  std::int64_t looked;  // when the waiting process last looked
  std::int64_t limit;
};

struct ShareFile {
  std::uint64_t format;
  std::int64_t total;
  std::int64_t served;  // how often a waiting process got memory, or gave up
  pthread_mutex_t mutex;
  std::array<ShareRow, kShareRows> rows;
};

[[noreturn]] inline void throw_errno(const std::string& path) {
  throw std::system_error(errno, std::generic_category(), path);
}

// Holds the mutex in the file.
class ShareAccess {
 public:
  explicit ShareAccess(ShareFile& file) : mutex_(file.mutex) {
    const int error = pthread_mutex_lock(&mutex_);
    if (error == EOWNERDEAD) {
      pthread_mutex_consistent(&mutex_);  // its holder was killed; each change is one store
    } else {
      RECOUP_CHECK(error == 0);
    }
  }
  ~ShareAccess() { pthread_mutex_unlock(&mutex_); }
  ShareAccess(const ShareAccess&) = delete;
  ShareAccess& operator=(const ShareAccess&) = delete;

 private:
  pthread_mutex_t& mutex_;
};

// Holds the lock of the file.
class FileLock {
 public:
  // Throws std::system_error, which names `path`.
  FileLock(int file_descriptor, const std::string& path) : file_descriptor_(file_descriptor) {
    while (flock(file_descriptor_, LOCK_EX) != 0) {
      if (errno != EINTR) {
        throw_errno(path);
      }
    }
  }
  ~FileLock() { flock(file_descriptor_, LOCK_UN); }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int file_descriptor_;
};

}  // namespace recoup::detail
