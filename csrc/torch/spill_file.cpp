#include "csrc/torch/spill_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/statfs.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>
#include <stdexcept>

#include "csrc/base/strings.h"

namespace recoup::detail {
namespace {

constexpr std::int64_t kBlock = SpillFile::kBlock;
constexpr std::int64_t kBuffer = std::int64_t{1} << 20;

bool is_memory(const struct statfs& found) {
  return found.f_type == TMPFS_MAGIC || found.f_type == RAMFS_MAGIC;
}

// The first that is on a disk.
std::string default_directory() {
  const char* const given = std::getenv("TMPDIR");
  for (const std::string directory : {given == nullptr ? "" : given, "/tmp", "/var/tmp"}) {
    struct statfs found{};
    if (!directory.empty() && statfs(directory.c_str(), &found) == 0 && !is_memory(found)) {
      return directory;
    }
  }
  throw std::invalid_argument(
      "recoup: the system's directories for temporary files are memory (tmpfs), not a disk: give "
      "a spill_dir");
}

[[noreturn]] void fail(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

std::int64_t in_blocks(std::int64_t bytes) { return (bytes + kBlock - 1) / kBlock * kBlock; }

std::uint64_t sum_of(const void* bytes, Bytes size) {
  return XXH3_64bits(bytes, static_cast<std::size_t>(size.count()));
}

void refuse_memory(const std::string& directory) {
  struct statfs found{};
  if (statfs(directory.c_str(), &found) != 0) {
    fail(str_cat("recoup: no second tier in ", directory));
  }
  if (is_memory(found)) {
    throw std::invalid_argument(str_cat("recoup: ", directory,
                                        " is memory (tmpfs), not a disk: what is spilled there "
                                        "would take what it shall save. Give another spill_dir"));
  }
}

}  // namespace

void SpillFile::Free::operator()(void* memory) const noexcept { std::free(memory); }

SpillFile::SpillFile(const std::string& directory)
    : directory_(directory.empty() ? default_directory() : directory), owner_(getpid()) {
  refuse_memory(directory_);
  buffer_.reset(std::aligned_alloc(kBlock, kBuffer));
  if (!buffer_) {
    throw std::bad_alloc();
  }
  std::memset(buffer_.get(), 0, kBuffer);
  open(true);
  if (direct_ && !write(Bytes(0), buffer_.get(), Bytes(kBlock))) {
    close(file_);
    open(false);
    if (!write(Bytes(0), buffer_.get(), Bytes(kBlock))) {
      fail(str_cat("recoup: a second tier in ", directory_, " cannot be written"));
    }
  }
}

SpillFile::~SpillFile() { close(file_); }

// Without a name where the system can; else the name is taken away at once.
void SpillFile::open(bool direct) {
  direct_ = direct;
  const int flags = O_RDWR | O_CLOEXEC | (direct ? O_DIRECT : 0);
  file_ = ::open(directory_.c_str(), flags | O_TMPFILE, 0600);
  if (file_ >= 0) {
    return;
  }
  if (direct && errno == EINVAL) {
    open(false);
    return;
  }
  std::string name = str_cat(directory_, "/recoup-XXXXXX");
  file_ = mkostemp(name.data(), O_CLOEXEC | (direct ? O_DIRECT : 0));
  if (file_ < 0) {
    fail(str_cat("recoup: no second tier in ", directory_));
  }
  unlink(name.c_str());
}

bool SpillFile::forked() const noexcept { return getpid() != owner_; }

void SpillFile::keep_nothing() noexcept {
  if (!direct_) {
    fdatasync(file_);
    posix_fadvise(file_, 0, 0, POSIX_FADV_DONTNEED);
  }
}

bool SpillFile::write(Bytes to, const void* from, Bytes size) noexcept {
  if (forked()) {
    return false;
  }
  try {
    written_[to.count()] = {.size = size, .sum = sum_of(from, size)};
  } catch (const std::bad_alloc&) {
    return false;
  }
  if (!copy_out(to, from, size)) {
    return false;
  }
  keep_nothing();
  return true;
}

bool SpillFile::copy_out(Bytes to, const void* from, Bytes size) noexcept {
  for (std::int64_t done = 0; done < size.count();) {
    const std::int64_t part = std::min(size.count() - done, kBuffer);
    std::memcpy(buffer_.get(), static_cast<const char*>(from) + done,
                static_cast<std::size_t>(part));
    const std::int64_t whole = in_blocks(part);
    for (std::int64_t written = 0; written < whole;) {
      const ssize_t more =
          pwrite(file_, static_cast<const char*>(buffer_.get()) + written,
                 static_cast<std::size_t>(whole - written), to.count() + done + written);
      if (more < 0 && errno == EINTR) {
        continue;
      }
      if (more <= 0) {
        return false;
      }
      // A short write may end within a block; that block is written again.
      written += more < whole - written ? more / kBlock * kBlock : more;
      if (more < kBlock) {
        return false;
      }
    }
    done += part;
  }
  return true;
}

void SpillFile::read(void* to, Bytes from, Bytes size) {
  if (forked()) {
    throw std::runtime_error(
        "recoup: a forked process cannot read what its parent has spilled. Use it before the fork, "
        "or start the process with spawn");
  }
  copy_in(to, from, size);
  keep_nothing();
  if (const auto written = written_.find(from.count());
      written != written_.end() && sum_of(to, written->second.size) != written->second.sum) {
    throw std::runtime_error(str_cat("recoup: what was spilled to ", directory_, " is not what ",
                                     "was written there: ", written->second.size.count(),
                                     " bytes at ", from.count(), ". Is the disk broken?"));
  }
}

void SpillFile::copy_in(void* to, Bytes from, Bytes size) {
  for (std::int64_t done = 0; done < size.count();) {
    const std::int64_t part = std::min(size.count() - done, kBuffer);
    for (std::int64_t got = 0; got < part;) {
      const std::int64_t left = in_blocks(part) - got;
      const ssize_t more = pread(file_, static_cast<char*>(buffer_.get()) + got,
                                 static_cast<std::size_t>(left), from.count() + done + got);
      if (more < 0 && errno == EINTR) {
        continue;
      }
      if (more < 0) {
        fail(str_cat("recoup: what was spilled to ", directory_, " cannot be read"));
      }
      got += more < left ? more / kBlock * kBlock : more;
      if (more < kBlock) {
        errno = EIO;
        fail(str_cat("recoup: what was spilled to ", directory_, " is not there"));
      }
    }
    std::memcpy(static_cast<char*>(to) + done, buffer_.get(), static_cast<std::size_t>(part));
    done += part;
  }
}

// The quickest of a few, of each: the others were disturbed.
TierSpeed SpillFile::measure() {
  using Clock = std::chrono::steady_clock;
  using Ns = std::chrono::duration<double, std::nano>;
  constexpr std::int64_t kSize = 8 * kBuffer;
  constexpr int kTimes = 3;
  const std::unique_ptr<char[]> bytes(new char[kSize]());
  double write_ns = std::numeric_limits<double>::infinity();
  double read_ns = write_ns;
  for (int i = 0; i < kTimes; ++i) {
    auto start = Clock::now();
    if (!write(Bytes(0), bytes.get(), Bytes(kSize))) {
      return {};
    }
    write_ns = std::min(write_ns, Ns(Clock::now() - start).count());
    start = Clock::now();
    read(bytes.get(), Bytes(0), Bytes(kSize));
    read_ns = std::min(read_ns, Ns(Clock::now() - start).count());
  }
  return {.write_ns_per_byte = write_ns / kSize, .read_ns_per_byte = read_ns / kSize};
}

}  // namespace recoup::detail
