// What the signal handler of paged memory calls: functions that a handler may call.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "csrc/disk/checksum.h"

namespace recoup::detail {

// In the signal handler: the kernel that needs the block cannot go on, and gets no error.
[[noreturn]] inline void give_up(const char* what) noexcept {
  constexpr const char* kBegin = "recoup: a tensor in paged memory is lost, so the process ends: ";
  (void)!write(STDERR_FILENO, kBegin, std::strlen(kBegin));
  (void)!write(STDERR_FILENO, what, std::strlen(what));
  (void)!write(STDERR_FILENO, "\n", 1);
  std::abort();
}

inline std::int64_t now_ns() noexcept {
  constexpr std::int64_t kSecond = 1'000'000'000;
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * kSecond + time.tv_nsec;
}

// The part of a block's checksum that paged memory keeps: 61 bits.
inline constexpr std::uint64_t kPageSum = (std::uint64_t{1} << 61) - 1;
inline std::uint64_t page_sum(const void* bytes, std::int64_t size) {
  return checksum(bytes, size) & kPageSum;
}

// Copies between memory and a file, whole.
template <class Call>
bool copy_whole(std::int64_t size, Call&& call) noexcept {
  for (std::int64_t done = 0; done < size;) {
    const ssize_t count = call(done);
    if (count <= 0 && !(count < 0 && errno == EINTR)) {
      return false;
    }
    done += std::max<ssize_t>(count, 0);
  }
  return true;
}

inline bool read_whole(int file, char* to, std::int64_t size, std::int64_t offset) noexcept {
  return copy_whole(size, [&](std::int64_t done) {
    return pread(file, to + done, static_cast<std::size_t>(size - done), offset + done);
  });
}

inline bool write_whole(int file, const char* from, std::int64_t size,
                        std::int64_t offset) noexcept {
  return copy_whole(size, [&](std::int64_t done) {
    return pwrite(file, from + done, static_cast<std::size_t>(size - done), offset + done);
  });
}

}  // namespace recoup::detail
