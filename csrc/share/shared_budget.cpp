#include "csrc/share/shared_budget.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "csrc/base/check.h"
#include "csrc/base/strings.h"

namespace recoup::detail {
namespace {
constexpr std::uint64_t kFormat = 0x7265636f75700001;  // changes with the layout of the file
constexpr std::size_t kRows = 256;
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

// The same clock in all processes.
Nanoseconds now() {
  return std::chrono::duration_cast<Nanoseconds>(
      std::chrono::steady_clock::now().time_since_epoch());
}

[[noreturn]] void throw_errno(const std::string& path) {
  throw std::system_error(errno, std::generic_category(), path);
}

// Whether all threads of a process have ended. A process whose first thread has ended is a zombie,
// too, as long as others run.
bool has_ended(const std::string& folder, char state) {
  if (state != 'Z' && state != 'X') {
    return false;
  }
  std::error_code error;
  const std::filesystem::directory_iterator threads(folder + "/task", error);
  return error || std::distance(begin(threads), end(threads)) <= 1;
}

// When a process began, in ticks since the machine's start; a process id alone may belong to a
// later process. nullopt: it has ended. 0: that cannot be found out, for example because this
// process has no file descriptor left.
std::optional<std::uint64_t> start_of(std::int64_t process) {
  const std::string folder = str_cat("/proc/", process);
  const int file = ::open((folder + "/stat").c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) {
    const bool ended = kill(static_cast<pid_t>(process), 0) != 0 && errno == ESRCH;
    return ended ? std::nullopt : std::optional<std::uint64_t>(0);
  }
  std::array<char, 2048> text{};
  const ssize_t length = read(file, text.data(), text.size() - 1);
  ::close(file);
  // The name of the program is in parentheses, and may have any character.
  const char* const end = length > 0 ? std::strrchr(text.data(), ')') : nullptr;
  if (end == nullptr) {
    return 0;
  }
  std::istringstream fields(end + 1);
  char state = 0;
  fields >> state;
  constexpr int kBetween = 18;  // fields between the state and the start
  std::string skipped;
  for (int i = 0; i < kBetween; ++i) {
    fields >> skipped;
  }
  std::uint64_t start = 0;
  fields >> start;
  return has_ended(folder, state) ? std::nullopt : std::optional(start);
}

Bytes round_up(Bytes size) {
  return Bytes((size.count() + kUnit.count() - 1) / kUnit.count() * kUnit.count());
}

// The least by which a part grows.
Bytes step_of(Bytes total) { return std::max(kUnit, round_up(Bytes(total.count() / kSteps))); }
}  // namespace

struct SharedBudget::Row {
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

struct SharedBudget::File {
  std::uint64_t format;
  std::int64_t total;
  std::int64_t served;  // how often a waiting process got memory, or gave up
  pthread_mutex_t mutex;
  std::array<Row, kRows> rows;
};

// The mutex in the file.
class SharedBudget::Access {
 public:
  explicit Access(const SharedBudget& shared) : mutex_(shared.file_->mutex) {
    const int error = pthread_mutex_lock(&mutex_);
    if (error == EOWNERDEAD) {
      pthread_mutex_consistent(&mutex_);  // its holder was killed; each change is one store
    } else {
      RECOUP_CHECK(error == 0);
    }
  }
  ~Access() { pthread_mutex_unlock(&mutex_); }
  Access(const Access&) = delete;
  Access& operator=(const Access&) = delete;

 private:
  pthread_mutex_t& mutex_;
};

// The lock of the file.
class SharedBudget::FileLock {
 public:
  explicit FileLock(const SharedBudget& shared) : file_descriptor_(shared.file_descriptor_) {
    while (flock(file_descriptor_, LOCK_EX) != 0) {
      if (errno != EINTR) {
        throw_errno(shared.path_);
      }
    }
  }
  ~FileLock() { flock(file_descriptor_, LOCK_UN); }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int file_descriptor_;
};

SharedBudget::SharedBudget(const std::string& file, Bytes total, const Settings& settings)
    : path_(file), total_(total), settings_(settings), process_(getpid()) {
  if (total <= Bytes(0)) {
    throw std::invalid_argument("a shared budget must be above 0");
  }
  try {
    bool joined = false;
    while (!joined) {
      open();
      const FileLock lock(*this);
      joined = is_in_place();  // the last process may have removed the file since then
      if (joined) {
        join();
      }
    }
    const Bytes first = std::min(step_of(total_), total_);
    if (take(first) == Bytes(0) && wait_for(std::min(kUnit, total_)) == Bytes(0)) {
      throw std::runtime_error(str_cat("nothing is left of the shared budget: ", reason()));
    }
  } catch (...) {
    close();
    throw;
  }
}

SharedBudget::~SharedBudget() { close(); }

void SharedBudget::open() {
  if (file_descriptor_ >= 0) {
    munmap(file_, sizeof(File));
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
  if (const int error = posix_fallocate(file_descriptor_, 0, sizeof(File)); error != 0) {
    errno = error;
    throw_errno(path_);
  }
  void* const memory =
      mmap(nullptr, sizeof(File), PROT_READ | PROT_WRITE, MAP_SHARED, file_descriptor_, 0);
  if (memory == MAP_FAILED) {
    throw_errno(path_);
  }
  file_ = static_cast<File*>(memory);
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
  if (file_->format != 0 && file_->format != kFormat) {
    throw std::runtime_error(
        str_cat("another version of recoup shares a budget in the file ", path_));
  }
  if (file_->format == 0 || !anyone_lives()) {
    *file_ = File{};
    make_mutex();
    file_->total = total_.count();
    file_->format = kFormat;
  }
  const Access access(*this);
  bury_dead(true);
  if (file_->total != total_.count()) {
    throw std::invalid_argument(str_cat("the other processes share a budget of ",
                                        recoup::to_string(Bytes(file_->total)), ", not ",
                                        recoup::to_string(total_)));
  }
  const auto row = std::find_if(file_->rows.begin(), file_->rows.end(),
                                [](const Row& each) { return each.process == 0; });
  if (row == file_->rows.end()) {
    throw std::runtime_error(str_cat("more than ", kRows, " processes share a budget"));
  }
  *row = Row{};
  row->start = start_of(process_).value_or(0);
  row->limit = kNoLimit.count();
  row->process = process_;
  row_ = &*row;
}

void SharedBudget::close() noexcept {
  if (row_ != nullptr && is_of_this_process()) {
    try {
      const FileLock lock(*this);
      const Access access(*this);
      row_->process = 0;
      if (!others_live() && is_in_place()) {
        unlink(path_.c_str());
      }
    } catch (const std::system_error&) {  // the row is freed when this process has ended
    }
  }
  row_ = nullptr;
  if (file_ != nullptr) {
    munmap(file_, sizeof(File));
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
                     [this](const Row& row) { return row.process != 0 && &row != row_; });
}

Bytes SharedBudget::free_bytes() const {
  std::int64_t taken = 0;
  for (const Row& row : file_->rows) {
    taken += row.process != 0 ? row.part + row.workers : 0;
  }
  return total_ - Bytes(taken);
}

bool SharedBudget::has_died(const Row& row) {
  const std::optional<std::uint64_t> start = start_of(row.process);
  return !start || (*start != 0 && row.start != 0 && *start != row.start);
}

// Whether a row belongs to a process that has not ended. Without the mutex.
bool SharedBudget::anyone_lives() const {
  return std::any_of(file_->rows.begin(), file_->rows.end(),
                     [](const Row& row) { return row.process != 0 && !has_died(row); });
}

// Frees the rows of processes that have ended. A look at all processes takes time, so it is not
// done each time unless `at_once`.
void SharedBudget::bury_dead(bool at_once) {
  if (const Nanoseconds time = now(); at_once || time >= next_burial_) {
    next_burial_ = time + kBetweenBurials;
    for (Row& row : file_->rows) {
      if (row.process != 0 && &row != row_ && has_died(row)) {
        row.process = 0;
      }
    }
  }
}

// A process that has not looked for long may be stopped.
bool SharedBudget::is_waiting(const Row& row, Nanoseconds time) {
  return row.needs > 0 && time - Nanoseconds(row.looked) < kLongWait;
}

// Whether free bytes are for another process that waits.
bool SharedBudget::others_come_first(bool waits) const {
  const Nanoseconds time = now();
  return std::any_of(file_->rows.begin(), file_->rows.end(), [&](const Row& row) {
    return row.process != 0 && &row != row_ && is_waiting(row, time) &&
           (!waits || (row.needs_since < row_->needs_since &&
                       time - Nanoseconds(row.needs_since) > kLongWait));
  });
}

// `waits`: an op waits for the bytes, and needs all of them. `even_first`: others that wait do not
// come first.
Bytes SharedBudget::take_now(Bytes wanted, bool waits, bool even_first) {
  const auto come_first = [&] { return !even_first && others_come_first(waits); };
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
  const Access access(*this);
  return take_now(wanted, /*waits=*/false, /*even_first=*/false);
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
      const Access access(*this);
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
      const Bytes got = take_now(least, /*waits=*/true, /*even_first=*/is_last);
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
    const Access access(*this);
    RECOUP_CHECK(bytes >= Bytes(0) && row_->part >= bytes.count());
    row_->part -= bytes.count();
  }
}

void SharedBudget::force(Bytes part) {
  if (is_of_this_process()) {
    const Access access(*this);
    row_->part = part.count();
    most_ = std::max(most_, part);
  }
}

void SharedBudget::publish(Bytes demand, Bytes workers) {
  if (is_of_this_process()) {
    const Access access(*this);
    row_->demand = demand.count();
    row_->workers = workers.count();
    bury_dead(false);
  }
}

void SharedBudget::set_limit(Bytes limit) {
  if (is_of_this_process()) {
    const Access access(*this);
    row_->limit = limit.count();
  }
}

Bytes SharedBudget::part() const {
  if (!is_of_this_process()) {
    return Bytes(0);
  }
  const Access access(*this);
  return Bytes(row_->part);
}

std::vector<SharePart> SharedBudget::parts() const {
  std::vector<SharePart> parts;
  if (!is_of_this_process()) {
    return parts;
  }
  const Access access(*this);
  const Nanoseconds time = now();
  for (const Row& row : file_->rows) {
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
  std::optional<Access> access;
  if (is_of_this_process()) {
    access.emplace(*this);
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
