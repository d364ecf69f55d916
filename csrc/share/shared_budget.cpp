#include "csrc/share/shared_budget.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "csrc/base/at_end.h"
#include "csrc/base/check.h"
#include "csrc/base/strings.h"
#include "csrc/share/process_start.h"

namespace recoup::detail {
namespace {
constexpr Bytes kUnit{64 << 10};  // parts grow in multiples of this
// A part grows by at least the total divided by this number, if that is free.
constexpr std::int64_t kSteps = 64;
constexpr Nanoseconds kBetweenBurials = std::chrono::milliseconds(100);
constexpr Nanoseconds kBetweenLooks = std::chrono::milliseconds(2);
// A process that has waited for this long is served before those that wait for less. One that has
// not looked for this long is not waited for.
constexpr Nanoseconds kLongWait = std::chrono::seconds(1);
// A wait that begins within this time after one in vain is one of the same op.
constexpr Nanoseconds kShortly = std::chrono::milliseconds(500);
constexpr Bytes kNoLimit{std::int64_t{1} << 62};

// Reads the clock that all processes share.
Nanoseconds now() {
  return std::chrono::duration_cast<Nanoseconds>(
      std::chrono::steady_clock::now().time_since_epoch());
}

Bytes round_up(Bytes size) {
  return Bytes((size.count() + kUnit.count() - 1) / kUnit.count() * kUnit.count());
}

// The least by which a part grows.
Bytes step_of(Bytes total) { return std::max(kUnit, round_up(Bytes(total.count() / kSteps))); }
}  // namespace

SharedBudget::SharedBudget(const std::string& file, Bytes total, const Settings& settings)
    : path_(file), total_(total), settings_(settings), process_(getpid()) {
  if (total <= Bytes(0)) {
    throw std::invalid_argument("a shared budget must be above 0");
  }
  AtEnd not_joined([this] { close(); });
  bool joined = false;
  while (!joined) {
    open();
    const FileLock lock(file_descriptor_, path_);
    joined = is_in_place();  // the last process may have removed the file since then
    if (joined) {
      join();
    }
  }
  const Bytes first = std::min(step_of(total_), total_);
  if (take(first) == Bytes(0) && wait_for(std::min(kUnit, total_)) == Bytes(0)) {
    throw std::runtime_error(str_cat("nothing is left of the shared budget: ", reason()));
  }
  not_joined.cancel();
}

SharedBudget::~SharedBudget() { close(); }

void SharedBudget::open() {
  if (file_descriptor_ >= 0) {
    munmap(file_, sizeof(ShareFile));
    ::close(file_descriptor_);
    file_ = nullptr;
  }
  file_descriptor_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  struct stat opened{};
  if (file_descriptor_ < 0 || fstat(file_descriptor_, &opened) != 0) {
    throw_errno(path_);
  }
  if (opened.st_uid != geteuid() || !S_ISREG(opened.st_mode)) {
    errno = EPERM;
    throw_errno(path_);
  }
  // Takes the memory now: later there may be none, which would end the process.
  if (const int error = posix_fallocate(file_descriptor_, 0, sizeof(ShareFile)); error != 0) {
    errno = error;
    throw_errno(path_);
  }
  void* const memory =
      mmap(nullptr, sizeof(ShareFile), PROT_READ | PROT_WRITE, MAP_SHARED, file_descriptor_, 0);
  if (memory == MAP_FAILED) {
    throw_errno(path_);
  }
  file_ = static_cast<ShareFile*>(memory);
}

// Whether the path still leads to the open file.
bool SharedBudget::is_in_place() const {
  struct stat opened{};
  struct stat there{};
  return fstat(file_descriptor_, &opened) == 0 && stat(path_.c_str(), &there) == 0 &&
         opened.st_dev == there.st_dev && opened.st_ino == there.st_ino;
}

void SharedBudget::make_mutex() {
  pthread_mutexattr_t attributes;
  RECOUP_CHECK(pthread_mutexattr_init(&attributes) == 0 &&
               pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED) == 0 &&
               pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST) == 0 &&
               pthread_mutex_init(&file_->mutex, &attributes) == 0);
  pthread_mutexattr_destroy(&attributes);
}

// Under the lock of the file.
void SharedBudget::join() {
  if (file_->format != 0 && file_->format != kShareFormat) {
    throw std::runtime_error(
        str_cat("another version of recoup shares a budget in the file ", path_));
  }
  if (file_->format == 0 || !anyone_lives()) {
    *file_ = ShareFile{};
    make_mutex();
    file_->total = total_.count();
    file_->format = kShareFormat;
  }
  const ShareAccess access(*file_);
  bury_dead(true);
  if (file_->total != total_.count()) {
    throw std::invalid_argument(str_cat("the other processes share a budget of ",
                                        recoup::to_string(Bytes(file_->total)), ", not ",
                                        recoup::to_string(total_)));
  }
  const auto row = std::find_if(file_->rows.begin(), file_->rows.end(),
                                [](const ShareRow& each) { return each.process == 0; });
  if (row == file_->rows.end()) {
    throw std::runtime_error(str_cat("more than ", kShareRows, " processes share a budget"));
  }
  *row = ShareRow{};
  row->start = start_of(process_).value_or(0);
  row->limit = kNoLimit.count();
  row->process = process_;
  row_ = &*row;
}

void SharedBudget::close() noexcept {
  if (row_ != nullptr && is_of_this_process()) {
    try {
      const FileLock lock(file_descriptor_, path_);
      const ShareAccess access(*file_);
      row_->process = 0;
      if (!others_live() && is_in_place()) {
        unlink(path_.c_str());
      }
    } catch (const std::system_error&) {  // the row is freed when this process has ended
    }
  }
  row_ = nullptr;
  if (file_ != nullptr) {
    munmap(file_, sizeof(ShareFile));
    file_ = nullptr;
  }
  if (file_descriptor_ >= 0) {
    ::close(file_descriptor_);
    file_descriptor_ = -1;
  }
}

bool SharedBudget::is_of_this_process() const { return getpid() == process_; }

// Whether other rows are taken.
bool SharedBudget::others_live() const {
  return std::any_of(file_->rows.begin(), file_->rows.end(),
                     [this](const ShareRow& row) { return row.process != 0 && &row != row_; });
}

Bytes SharedBudget::free_bytes() const {
  std::int64_t taken = 0;
  for (const ShareRow& row : file_->rows) {
    taken += row.process != 0 ? row.part + row.workers : 0;
  }
  return total_ - Bytes(taken);
}

bool SharedBudget::has_died(const ShareRow& row) {
  const std::optional<std::uint64_t> start = start_of(row.process);
  return !start || (*start != 0 && row.start != 0 && *start != row.start);
}

// Whether a row belongs to a process that has not ended. Without the mutex.
bool SharedBudget::anyone_lives() const {
  return std::any_of(file_->rows.begin(), file_->rows.end(),
                     [](const ShareRow& row) { return row.process != 0 && !has_died(row); });
}

// Frees the rows of processes that have ended. A look at all processes takes time, so it is not
// done each time unless `at_once`.
void SharedBudget::bury_dead(bool at_once) {
  if (const Nanoseconds time = now(); at_once || time >= next_burial_) {
    next_burial_ = time + kBetweenBurials;
    for (ShareRow& row : file_->rows) {
      if (row.process != 0 && &row != row_ && has_died(row)) {
        row.process = 0;
      }
    }
  }
}

// A process that has not looked for long may be stopped.
bool SharedBudget::is_waiting(const ShareRow& row, Nanoseconds time) {
  return row.needs > 0 && time - Nanoseconds(row.looked) < kLongWait;
}

// Whether free bytes are for another process that waits.
bool SharedBudget::others_come_first(bool waits) const {
  const Nanoseconds time = now();
  return std::any_of(file_->rows.begin(), file_->rows.end(), [&](const ShareRow& row) {
    return row.process != 0 && &row != row_ && is_waiting(row, time) &&
           (!waits || (row.needs_since < row_->needs_since &&
                       time - Nanoseconds(row.needs_since) > kLongWait));
  });
}

// `waits`: an op waits for the bytes, and needs all of them.
Bytes SharedBudget::take_now(Bytes wanted, bool waits, Turn turn) {
  const auto come_first = [&] { return turn == Turn::kInOrder && others_come_first(waits); };
  if (free_bytes() < wanted || come_first()) {
    bury_dead(false);
  }
  const Bytes free = free_bytes();
  const Bytes part(row_->part);
  const Bytes most = waits ? free : std::min(free, Bytes(row_->limit) - part);
  if (most <= Bytes(0) || (waits && most < wanted) || come_first()) {
    return Bytes(0);
  }
  const Bytes got = std::min(most, std::max(round_up(wanted), step_of(total_)));
  row_->part = (part + got).count();
  most_ = std::max(most_, part + got);
  return got;
}

Bytes SharedBudget::take(Bytes wanted) {
  RECOUP_CHECK(wanted > Bytes(0));
  if (!is_of_this_process()) {
    return Bytes(0);
  }
  const ShareAccess access(*file_);
  return take_now(wanted, /*waits=*/false, Turn::kInOrder);
}

Bytes SharedBudget::wait_for(Bytes least) {
  RECOUP_CHECK(least > Bytes(0));
  if (!is_of_this_process()) {
    return Bytes(0);
  }
  constexpr int kMostPatience = 6;
  const Nanoseconds start = now();
  const Nanoseconds last = start + kMostPatience * settings_.patience;
  Nanoseconds until = start + settings_.patience;
  Bytes most_free{0};
  std::int64_t served = 0;
  for (bool first = true;; first = false) {
    {
      const ShareAccess access(*file_);
      if (first && start - vain_end_ < kShortly && least >= vain_least_ && free_bytes() < least) {
        return Bytes(0);  // another try of the same op
      }
      if (first) {
        row_->needs_since = start.count();
      }
      row_->looked = now().count();
      row_->needs = least.count();
      if (first || file_->served != served || free_bytes() > most_free) {
        served = file_->served;
        most_free = std::max(most_free, free_bytes());
        until = now() + settings_.patience;
      }
      // Memory of workers that end becomes free.
      const bool can_come =
          (others_live() || row_->workers > 0) && Bytes(row_->part) + least <= total_;
      const bool is_last = !can_come || now() >= std::min(until, last);
      const Bytes got = take_now(least, /*waits=*/true, is_last ? Turn::kAtOnce : Turn::kInOrder);
      if (got > Bytes(0) || is_last) {
        row_->needs = 0;
        if (!first) {
          ++file_->served;
          ++waits_;
          wait_time_ += now() - start;
          vain_end_ = got > Bytes(0) ? Nanoseconds(0) : now();
          vain_least_ = least;
        }
        return got;
      }
    }
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

void SharedBudget::give(Bytes bytes) {
  if (is_of_this_process()) {
    const ShareAccess access(*file_);
    RECOUP_CHECK(bytes >= Bytes(0) && row_->part >= bytes.count());
    row_->part -= bytes.count();
  }
}

void SharedBudget::force(Bytes part) {
  if (is_of_this_process()) {
    const ShareAccess access(*file_);
    row_->part = part.count();
    most_ = std::max(most_, part);
  }
}

void SharedBudget::publish(Bytes demand, Bytes workers) {
  if (is_of_this_process()) {
    const ShareAccess access(*file_);
    row_->demand = demand.count();
    row_->workers = workers.count();
    bury_dead(false);
  }
}

void SharedBudget::set_limit(Bytes limit) {
  if (is_of_this_process()) {
    const ShareAccess access(*file_);
    row_->limit = limit.count();
  }
}

Bytes SharedBudget::part() const {
  if (!is_of_this_process()) {
    return Bytes(0);
  }
  const ShareAccess access(*file_);
  return Bytes(row_->part);
}

std::vector<SharePart> SharedBudget::parts() const {
  std::vector<SharePart> parts;
  if (!is_of_this_process()) {
    return parts;
  }
  const ShareAccess access(*file_);
  const Nanoseconds time = now();
  for (const ShareRow& row : file_->rows) {
    if (row.process == 0) {
      continue;
    }
    SharePart part{.process = static_cast<pid_t>(row.process),
                   .is_own = &row == row_,
                   .part = Bytes(row.part),
                   .workers = Bytes(row.workers),
                   .demand = Bytes(row.demand)};
    if (is_waiting(row, time)) {
      part.needs = Bytes(row.needs);
      part.wait_time = time - Nanoseconds(row.needs_since);
    }
    parts.push_back(part);
  }
  return parts;
}

ShareCounters SharedBudget::counters() const {
  std::optional<ShareAccess> access;
  if (is_of_this_process()) {
    access.emplace(*file_);
  }
  return {.total = total_, .most = most_, .waits = waits_, .wait_time = wait_time_};
}

std::string SharedBudget::reason() const {
  Bytes others{0};
  Bytes workers{0};
  std::int64_t count = 0;
  for (const SharePart& part : parts()) {
    workers += part.workers;
    if (!part.is_own) {
      others += part.part;
      ++count;
    }
  }
  std::string text = str_cat("the budget of ", recoup::to_string(total_), " is shared: ");
  text += count == 0 ? "no other process has a part of it now"
                     : str_cat("others have ", recoup::to_string(others),
                               " of it (processes: ", count, ")");
  if (workers > Bytes(0)) {
    text += str_cat(", and worker processes ", recoup::to_string(workers));
  }
  return text;
}

}  // namespace recoup::detail
