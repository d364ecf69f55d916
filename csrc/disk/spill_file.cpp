#include "csrc/disk/spill_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "csrc/base/check.h"
#include "csrc/base/fork_mutex.h"
#include "csrc/base/strings.h"
#include "csrc/disk/copy_buffer.h"
#include "csrc/disk/unnamed_file.h"

namespace recoup::detail {
namespace {

[[noreturn]] void fail(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

}  // namespace

SpillFile::SpillFile(const std::string& directory, const Settings& settings)
    : directory_(directory.empty() ? default_directory() : directory), owner_(getpid()) {
  refuse_memory(directory_);
  open(true);
  make_copier(settings);
  const std::unique_ptr<char[]> block(new char[kBlock]());
  if (direct_ && !write(Bytes(0), block.get(), Bytes(kBlock))) {
    copier_.reset();
    close(file_);
    open(false);
    make_copier(settings);
    if (!write(Bytes(0), block.get(), Bytes(kBlock))) {
      copier_.reset();
      close(file_);
      fail(str_cat("recoup: cannot write the file of the spill tier in ", directory_));
    }
  }
}

SpillFile::~SpillFile() {
  if (forked() && copier_) {
    copier_->abandon();
    copier_.reset();
  }
  const bool stuck = copier_ && copier_->stuck();
  copier_.reset();
  if (!stuck) {
    close(file_);
  }
}

void SpillFile::make_copier(const Settings& settings) {
  std::unique_ptr<BlockIo> io = settings.make_io ? settings.make_io() : nullptr;
  if (!io) {
    io = make_uring_io(Copier::kBuffers);
  }
  copier_ =
      std::make_unique<Copier>(file_, io ? std::move(io) : make_plain_io(), settings.patience);
}

void SpillFile::open(bool direct) {
  const UnnamedFile made = make_unnamed_file(directory_, direct);
  file_ = made.descriptor;
  direct_ = made.direct;
}

bool SpillFile::forked() const noexcept { return getpid() != owner_; }

void SpillFile::keep_nothing() noexcept {
  if (!direct_) {
    fdatasync(file_);
    posix_fadvise(file_, 0, 0, POSIX_FADV_DONTNEED);
  }
}

void SpillFile::begin_write(Bytes to, const void* from, Bytes size) {
  if (!forked()) {
    written_[to.count()] = {.size = size, .sums = {}};
    copier_->begin_write(to.count(), from, size.count());
  }
}

std::string SpillFile::failure() const {
  return failed_with_ == 0
             ? std::string()
             : str_cat("[Errno ", failed_with_, "] ", std::system_category().message(failed_with_),
                       ", in ", directory_.empty() ? "the folder for temporary files" : directory_);
}

bool SpillFile::end_write(Bytes to) noexcept {
  if (forked()) {
    return false;
  }
  Copier::Result result = copier_->end(to.count());
  if (result.kind != Copier::Result::Kind::kTimedOut) {  // else it would wait for the disk again
    keep_nothing();
  }
  if (result.kind != Copier::Result::Kind::kDone) {
    errno = failed_with_ = result.error;
    written_.erase(to.count());
    return false;
  }
  written_[to.count()].sums = std::move(result.sums);
  return true;
}

bool SpillFile::write(Bytes to, const void* from, Bytes size) {
  begin_write(to, from, size);
  return end_write(to);
}

void SpillFile::begin_read(void* to, Bytes from, Bytes size) {
  if (!forked()) {
    const Written& written = written_.at(from.count());
    RECOUP_CHECK(written.size == size);
    copier_->begin_read(to, from.count(), size.count(), written.sums);
  }
}

void SpillFile::end_read(Bytes from) {
  using Kind = Copier::Result::Kind;
  if (forked()) {
    throw std::runtime_error(
        "recoup: a forked process cannot read tensors that its parent has spilled. Use them "
        "before the fork, or start the process with spawn");
  }
  const Copier::Result result = copier_->end(from.count());
  if (result.kind != Kind::kTimedOut) {
    keep_nothing();
  }
  const Bytes size = written_.at(from.count()).size;
  switch (result.kind) {
    case Kind::kDone:
      return;
    case Kind::kFailed:
      errno = result.error;
      fail(str_cat("recoup: a tensor that was spilled to ", directory_, " cannot be read"));
    case Kind::kTooShort:
      errno = EIO;
      fail(str_cat("recoup: a tensor that was spilled to ", directory_, " is missing"));
    case Kind::kTimedOut:
      throw std::runtime_error(str_cat("recoup: the disk of ", directory_,
                                       " does not respond: ", size.count(), " bytes at ",
                                       from.count(), " cannot be read now"));
    case Kind::kDifferent:
      throw std::runtime_error(str_cat("recoup: a tensor that was spilled to ", directory_,
                                       " was read back with other bits: ", size.count(),
                                       " bytes at ", from.count(), ". The disk may be faulty"));
  }
}

bool SpillFile::holds(Bytes place, const void* bytes, Bytes size) const {
  const auto found = written_.find(place.count());
  return !forked() && found != written_.end() && found->second.size == size &&
         found->second.sums == Copier::sums_of(bytes, size.count());
}

std::optional<TierSpeed> SpillFile::speed() {
  const DiskSpeed known = known_speed();
  if (known.write_ns_per_byte <= 0) {
    return std::nullopt;
  }
  return TierSpeed{.write_ns_per_byte = known.write_ns_per_byte,
                   .read_ns_per_byte = known.read_ns_per_byte,
                   .each = Nanoseconds(static_cast<std::int64_t>(known.request_ns))};
}

DiskSpeed SpillFile::known_speed() {
  static ForkMutex mutex;
  static std::map<dev_t, DiskSpeed> known;
  struct stat file{};
  const std::lock_guard lock(mutex);
  const bool known_file = fstat(file_, &file) == 0;
  if (const auto found = known.find(file.st_dev); known_file && found != known.end()) {
    return found->second;
  }
  const DiskSpeed measured = measure();
  if (known_file && measured.write_ns_per_byte > 0) {
    known.emplace(file.st_dev, measured);
  }
  return measured;
}

// Measures a few times and takes the fastest, because other activity slows measurements down.
DiskSpeed SpillFile::measure() {
  using Clock = std::chrono::steady_clock;
  using Ns = std::chrono::duration<double, std::nano>;
  constexpr std::int64_t kLong = 8 * Copier::kBuffer;
  constexpr int kTimes = 3;
  constexpr double kNone = std::numeric_limits<double>::infinity();
  const CopyBuffer bytes = make_copy_buffer(kLong);
  const auto quickest = [&](const auto& copy) {
    double best = kNone;
    for (int i = 0; i < kTimes; ++i) {
      const auto start = Clock::now();
      if (!copy()) {
        return kNone;
      }
      best = std::min(best, Ns(Clock::now() - start).count());
    }
    return best;
  };
  const auto write_of = [&](std::int64_t size) {
    return quickest([&] { return write(Bytes(0), bytes.get(), Bytes(size)); });
  };
  const auto read_of = [&](std::int64_t size) {
    return quickest([&] {
      begin_read(bytes.get(), Bytes(0), Bytes(size));
      end_read(Bytes(0));
      return true;
    });
  };
  const double written = write_of(kLong);
  if (written == kNone) {
    return {};
  }
  const double read = read_of(kLong);
  const double short_write = write_of(kBlock);
  const double short_read = short_write == kNone ? kNone : read_of(kBlock);
  const double request = std::min(short_write, short_read);
  return {.write_ns_per_byte = written / kLong,
          .read_ns_per_byte = read / kLong,
          .request_ns = request == kNone ? 0 : request};
}

}  // namespace recoup::detail
