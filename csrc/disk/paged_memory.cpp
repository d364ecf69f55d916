#include "csrc/disk/paged_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <iterator>
#include <mutex>
#include <system_error>

#include "csrc/base/check.h"
#include "csrc/disk/checksum.h"
#include "csrc/disk/unnamed_file.h"

namespace recoup::detail {
namespace {

std::atomic<PagedMemory*> of_this_process{nullptr};
// The action that SIGSEGV had before.
struct sigaction previous_action{};

[[noreturn]] void refuse_paged(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

void* map_zeros(std::size_t size) {
  void* const memory = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    refuse_paged("recoup: no memory for the table of paged memory");
  }
  return memory;
}

}  // namespace

// A lock without library calls that a signal handler must not make. All signals are blocked while
// it is held, so that no other handler of this thread needs it.
class PagedMemory::Locked {
 public:
  explicit Locked(std::atomic_flag& lock) noexcept : lock_(lock) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before_);
    while (lock_.test_and_set(std::memory_order_acquire)) {
      constexpr timespec kWait{.tv_sec = 0, .tv_nsec = 50'000};
      nanosleep(&kWait, nullptr);
    }
  }
  ~Locked() {
    lock_.clear(std::memory_order_release);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  std::atomic_flag& lock_;
  sigset_t before_;
};

PagedMemory& PagedMemory::in(const std::string& directory) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  PagedMemory* memory = of_process();
  if (memory == nullptr) {
    memory =
        new PagedMemory(directory);  // never destroyed: tensors may live as long as the process
    of_this_process.store(memory, std::memory_order_release);
  } else {
    memory->use(directory);
  }
  memory->install();
  return *memory;
}

PagedMemory* PagedMemory::of_process() noexcept {
  return of_this_process.load(std::memory_order_acquire);
}

void PagedMemory::use(const std::string& directory) {
  const std::string place = directory.empty() ? default_directory() : directory;
  refuse_memory(place);
  if (place == directory_ || counters().allocated_bytes > 0) {
    return;
  }
  const UnnamedFile file = make_unnamed_file(place, true);
  if (disk_file_ >= 0) {
    close(disk_file_);
  }
  disk_file_ = file.descriptor;
  direct_ = file.direct;
  directory_ = place;
}

PagedMemory::PagedMemory(const std::string& directory) : owner_(getpid()) {
  use(directory);
  try {
    reserve_addresses();
  } catch (const std::system_error&) {
    close(disk_file_);
    if (resident_file_ >= 0) {
      close(resident_file_);
    }
    if (base_ != nullptr) {
      munmap(base_, kAddresses);
    }
    throw;
  }
  (void)checksum(buffer_, kBlock);  // chooses its instructions now, and not in the handler
  free_.emplace(0, kBlocks);
  set_window(kLeastWindow);
}

void PagedMemory::reserve_addresses() {
  resident_file_ = memfd_create("recoup-paged", MFD_CLOEXEC);
  if (resident_file_ < 0 || ftruncate(resident_file_, kAddresses) != 0) {
    refuse_paged("recoup: no file in memory for the resident part of paged memory");
  }
  void* const addresses =
      mmap(nullptr, kAddresses, PROT_NONE, MAP_SHARED | MAP_NORESERVE, resident_file_, 0);
  if (addresses == MAP_FAILED) {
    refuse_paged("recoup: no address range for paged memory");
  }
  base_ = static_cast<char*>(addresses);
  // A child's blocks would be those of its parent.
  madvise(base_, kAddresses, MADV_DONTFORK);
  madvise(base_, kAddresses, MADV_DONTDUMP);
  madvise(base_, kAddresses, MADV_NOHUGEPAGE);  // a fault would take more than a block
  buffer_ = static_cast<char*>(map_zeros(kBlock));
  blocks_ = static_cast<Block*>(map_zeros(kBlocks * sizeof(Block)));
}

bool PagedMemory::has(const void* address) const noexcept {
  return in_range(address) && getpid() == owner_;
}

// Usable in a signal handler, under the lock.
bool PagedMemory::is_allocated(std::int64_t block) const noexcept {
  const auto after = allocated_.upper_bound(block);
  return after != allocated_.begin() && block < std::prev(after)->first + std::prev(after)->second;
}

// Other libraries, such as Python's faulthandler, may have taken the signal since the last time.
void PagedMemory::install() {
  struct sigaction now{};
  sigaction(SIGSEGV, nullptr, &now);
  if ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == &PagedMemory::handle) {
    return;
  }
  previous_action = now;
  struct sigaction ours{};
  ours.sa_sigaction = &PagedMemory::handle;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigfillset(&ours.sa_mask);
  if (sigaction(SIGSEGV, &ours, nullptr) != 0) {
    refuse_paged("recoup: the signal handler of paged memory cannot be installed");
  }
}

// Passes a signal that is not for paged memory to the action from before. If the same access faults
// again, that action has not removed the cause: the default action ends the process. (Python's
// faulthandler installs the handler again that it found, which is this one.)
void PagedMemory::pass_on(int signal, siginfo_t* info, void* context) {
  thread_local const void* last_address = nullptr;
  thread_local std::uintptr_t last_instruction = 0;
  const std::uintptr_t instruction = instruction_of(context);
  const struct sigaction& before = previous_action;
  const bool again = last_instruction == instruction && last_address == info->si_addr;
  last_instruction = instruction;
  last_address = info->si_addr;
  if (!again && (before.sa_flags & SA_SIGINFO) != 0 && before.sa_sigaction != nullptr) {
    before.sa_sigaction(signal, info, context);
    last_instruction = instruction_of(context) == instruction ? instruction : 0;
    return;
  }
  if (!again && (before.sa_flags & SA_SIGINFO) == 0 && before.sa_handler != SIG_DFL &&
      before.sa_handler != SIG_IGN) {
    before.sa_handler(signal);
    return;
  }
  std::signal(signal, SIG_DFL);
  if (info->si_code <= 0) {
    raise(signal);  // it was sent, and no access is repeated; delivered when this handler returns
  }
}

void PagedMemory::handle(int signal, siginfo_t* info, void* context) {
  PagedMemory* const memory = of_process();
  // A signal that was sent has no address.
  if (memory == nullptr || info->si_code <= 0 || !memory->in_range(info->si_addr)) {
    pass_on(signal, info, context);
    return;
  }
  if (getpid() != memory->owner_) {
    give_up("a forked child has no access to it");
  }
  const int error = errno;
  const std::int64_t block = (static_cast<char*>(info->si_addr) - memory->base_) / kBlock;
  bool allocated = false;
  {
    const Locked locked(memory->lock_);
    allocated = memory->is_allocated(block);
    if (allocated) {
      memory->enter(block);
    }
  }
  if (!allocated) {
    pass_on(signal, info, context);
  }
  errno = error;
}

// The processor says whether an access was a write in a way of its own. So a block that is read
// gets the right to be written at its second fault.
void PagedMemory::enter(std::int64_t block) {
  Block& entered = blocks_[block];
  if (entered.state == State::kDirty) {
    return;  // another thread was faster
  }
  if (entered.state == State::kClean) {
    entered.state = State::kDirty;
    protect(block, PROT_READ | PROT_WRITE);
    return;
  }
  while (resident_ >= window_) {
    evict_oldest();
  }
  const bool reads = entered.on_disk;
  if (reads) {
    read_in(block);
  }
  ring_[static_cast<std::size_t>((oldest_ + resident_) % ring_size_)] = block;
  ++resident_;
  // A block that was never written is written now.
  entered.state = reads ? State::kClean : State::kDirty;
  protect(block, reads ? PROT_READ : PROT_READ | PROT_WRITE);
}

void PagedMemory::protect(std::int64_t block, int rights) const {
  if (mprotect(at(block), kBlock, rights) != 0) {
    give_up("the system refuses to change the access rights of a block (vm.max_map_count)");
  }
}

void PagedMemory::evict_oldest() {
  const std::int64_t block = ring_[static_cast<std::size_t>(oldest_)];
  oldest_ = (oldest_ + 1) % ring_size_;
  --resident_;
  if (block < 0) {
    return;  // it has been released
  }
  protect(block, PROT_NONE);
  if (blocks_[block].state == State::kDirty) {
    write_out(block);
  }
  drop(block);
}

// Gives the pages of a block back to the system.
void PagedMemory::drop(std::int64_t block) {
  blocks_[block].state = State::kAbsent;
  if (fallocate(resident_file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, block * kBlock,
                kBlock) != 0) {
    give_up("the system refuses to take the memory of a block back");
  }
}

void PagedMemory::write_out(std::int64_t block) {
  const std::int64_t start = now_ns();
  if (!read_block(resident_file_, buffer_, block * kBlock)) {
    give_up("a block in memory cannot be read");
  }
  blocks_[block].sum = checksum(buffer_, kBlock);
  if (!write_block(disk_file_, buffer_, block * kBlock)) {
    give_up("the disk of the spill tier cannot be written");
  }
  if (!direct_) {
    fdatasync(disk_file_);
    posix_fadvise(disk_file_, block * kBlock, kBlock, POSIX_FADV_DONTNEED);
  }
  blocks_[block].on_disk = true;
  counters_.written_bytes += kBlock;
  counters_.disk_ns += now_ns() - start;
}

void PagedMemory::read_in(std::int64_t block) {
  const std::int64_t start = now_ns();
  if (!read_block(disk_file_, buffer_, block * kBlock)) {
    give_up("the disk of the spill tier cannot be read");
  }
  if (!direct_) {
    posix_fadvise(disk_file_, block * kBlock, kBlock, POSIX_FADV_DONTNEED);
  }
  if (checksum(buffer_, kBlock) != blocks_[block].sum) {
    give_up("the disk of the spill tier returned other bits than were written");
  }
  if (!write_block(resident_file_, buffer_, block * kBlock)) {
    give_up("the system has no memory for a block");
  }
  counters_.read_bytes += kBlock;
  counters_.disk_ns += now_ns() - start;
}

void PagedMemory::set_window(Bytes window) {
  RECOUP_CHECK(window >= kLeastWindow && window <= kMostWindow);
  const std::int64_t blocks = window.count() / kBlock - 1;  // the copy buffer is one
  auto ring = std::make_unique<std::int64_t[]>(static_cast<std::size_t>(blocks));
  const Locked locked(lock_);
  while (resident_ > blocks) {
    evict_oldest();
  }
  for (std::int64_t i = 0; i < resident_; ++i) {
    ring[static_cast<std::size_t>(i)] = ring_[static_cast<std::size_t>((oldest_ + i) % ring_size_)];
  }
  ring_.swap(ring);
  ring_size_ = window_ = blocks;
  oldest_ = 0;
}

void* PagedMemory::allocate(Bytes size) {
  RECOUP_CHECK(size > Bytes(0) && getpid() == owner_);
  const std::int64_t count = (size.count() + kBlock - 1) / kBlock;
  const Locked locked(lock_);
  const auto found = std::find_if(free_.begin(), free_.end(),
                                  [count](const auto& range) { return range.second >= count; });
  if (found == free_.end()) {
    errno = ENOMEM;
    refuse_paged("recoup: the address range of paged memory is full");
  }
  const auto [first, free] = *found;
  if (const int error = posix_fallocate(disk_file_, first * kBlock, count * kBlock); error != 0) {
    // What it has got so far.
    (void)fallocate(disk_file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, first * kBlock,
                    count * kBlock);
    errno = error;
    refuse_paged("recoup: the disk of the spill tier has no room for a tensor in paged memory");
  }
  free_.erase(found);
  if (free > count) {
    free_.emplace(first + count, free - count);
  }
  allocated_.emplace(first, count);
  counters_.allocated_bytes += count * kBlock;
  counters_.most_bytes = std::max(counters_.most_bytes, counters_.allocated_bytes);
  return at(first);
}

void PagedMemory::release(void* memory) noexcept {
  if (getpid() != owner_) {
    return;  // the file is the parent's
  }
  const Locked locked(lock_);
  const std::int64_t first = (static_cast<char*>(memory) - base_) / kBlock;
  const auto found = allocated_.find(first);
  RECOUP_CHECK(found != allocated_.end());
  const std::int64_t count = found->second;
  allocated_.erase(found);
  counters_.allocated_bytes -= count * kBlock;
  for (std::int64_t i = 0; i < resident_; ++i) {
    std::int64_t& block = ring_[static_cast<std::size_t>((oldest_ + i) % ring_size_)];
    if (block >= first && block < first + count) {
      protect(block, PROT_NONE);
      drop(block);
      block = -1;
    }
  }
  for (std::int64_t block = first; block < first + count; ++block) {
    blocks_[block].on_disk = false;
  }
  // If the file system cannot, the file keeps its size.
  (void)fallocate(disk_file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, first * kBlock,
                  count * kBlock);
  auto [range, added] = free_.emplace(first, count);
  RECOUP_CHECK(added);
  if (const auto next = std::next(range);
      next != free_.end() && range->first + range->second == next->first) {
    range->second += next->second;
    free_.erase(next);
  }
  if (range != free_.begin()) {
    if (const auto before = std::prev(range); before->first + before->second == range->first) {
      before->second += range->second;
      free_.erase(range);
    }
  }
}

PagedMemory::Counters PagedMemory::counters() const {
  const Locked locked(lock_);
  Counters counters = counters_;
  counters.resident_bytes = (resident_ + 1) * kBlock;
  return counters;
}

void PagedMemory::reset_most() {
  const Locked locked(lock_);
  counters_.most_bytes = counters_.allocated_bytes;
}

void PagedMemory::check() const {
  const Locked locked(lock_);
  std::int64_t blocks = 0;
  std::int64_t end = 0;
  for (const auto& ranges : {free_, allocated_}) {
    for (const auto& [first, count] : ranges) {
      RECOUP_CHECK(first >= 0 && count > 0);
      blocks += count;
      end = std::max(end, first + count);
    }
  }
  RECOUP_CHECK(blocks == kBlocks && end == kBlocks && resident_ <= window_);
  std::int64_t resident = 0;
  for (const auto& [first, count] : allocated_) {
    for (std::int64_t block = first; block < first + count; ++block) {
      resident += blocks_[block].state != State::kAbsent ? 1 : 0;
    }
  }
  RECOUP_CHECK(resident <= resident_);
}

}  // namespace recoup::detail
