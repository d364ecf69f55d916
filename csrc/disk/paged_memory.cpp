#include "csrc/disk/paged_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <iterator>
#include <mutex>
#include <system_error>

#include "csrc/base/check.h"
#include "csrc/disk/handler_calls.h"
#include "csrc/disk/page_lock.h"
#include "csrc/disk/unnamed_file.h"

namespace recoup::detail {
namespace {

std::atomic<PagedMemory*> of_this_process{nullptr};
// In a forked child: that of its parent.
std::atomic<const PagedMemory*> of_parent{nullptr};
// The action that SIGSEGV had before.
struct sigaction previous_action{};
// Number of the action that is installed; kept in its mask.
unsigned generation = 0;
sigset_t mask_before_fork;

[[noreturn]] void refuse_paged(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

// Signals that say by their absence from an action's mask which of them it is.
constexpr unsigned kGenerationBits = 6;
constexpr unsigned kGenerations = 1U << kGenerationBits;

sigset_t mask_of(unsigned number) {
  sigset_t mask;
  sigfillset(&mask);
  for (unsigned bit = 0; bit < kGenerationBits; ++bit) {
    if ((number >> bit & 1) != 0) {
      sigdelset(&mask, SIGRTMAX - static_cast<int>(bit));
    }
  }
  return mask;
}

unsigned generation_of(const sigset_t& mask) {
  unsigned number = 0;
  for (unsigned bit = 0; bit < kGenerationBits; ++bit) {
    number |= sigismember(&mask, SIGRTMAX - static_cast<int>(bit)) == 0 ? 1U << bit : 0U;
  }
  return number;
}

void* map_zeros(std::int64_t size) {
  void* const memory = mmap(nullptr, static_cast<std::size_t>(size), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    refuse_paged("recoup: no memory for the table of paged memory");
  }
  return memory;
}

}  // namespace

PagedMemory& PagedMemory::in(const std::string& directory) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  PagedMemory* memory = of_process();
  if (memory == nullptr) {
    memory =
        new PagedMemory(directory);  // never destroyed: tensors may live as long as the process
    of_this_process.store(memory, std::memory_order_release);
    static const int forks = pthread_atfork(&PagedMemory::before_fork, &PagedMemory::after_fork,
                                            &PagedMemory::after_fork_in_child);
    (void)forks;
  } else {
    memory->use(directory);
  }
  memory->install();
  return *memory;
}

PagedMemory* PagedMemory::of_process() noexcept {
  return of_this_process.load(std::memory_order_acquire);
}

std::int64_t PagedMemory::block_for(Bytes window) {
  const auto least = static_cast<std::uint64_t>(window.count() / kMostBlocks);
  return std::clamp(static_cast<std::int64_t>(std::bit_ceil(least)),
                    static_cast<std::int64_t>(sysconf(_SC_PAGESIZE)), kLargestBlock);
}

PagedMemory::PagedMemory(const std::string& directory)
    : ring_(std::make_unique<Slot[]>(kMostBlocks)) {
  use(directory);
  resident_file_ = memfd_create("recoup-paged", MFD_CLOEXEC);
  if (resident_file_ < 0 || ftruncate(resident_file_, kFileBytes) != 0) {
    const int error = errno;
    close(disk_file_);
    if (resident_file_ >= 0) {
      close(resident_file_);
    }
    errno = error;
    refuse_paged("recoup: no file in memory for the resident part of paged memory");
  }
  copies_.use(resident_file_, disk_file_, direct_);
  (void)page_sum(copies_.bytes(), 1);  // chooses its instructions now, and not in the handler
  free_.emplace(0, kFileBytes);
  set_window(kLeastWindow);
}

void PagedMemory::use(const std::string& directory) {
  const std::string place = directory.empty() ? default_directory() : directory;
  if (place == directory_ || counters().allocated_bytes > 0) {
    return;
  }
  refuse_memory(place);
  const UnnamedFile file = make_unnamed_file(place, true);
  if (disk_file_ >= 0) {
    close(disk_file_);
  }
  disk_file_ = file.descriptor;
  direct_ = file.direct;
  directory_ = place;
  copies_.use(resident_file_, disk_file_, direct_);
}

// ---- fork ----

// The tables of a child must be whole: it looks there for the tensors that it has no access to.
void PagedMemory::before_fork() noexcept {
  PagedMemory* const memory = of_process();
  if (memory != nullptr) {
    const sigset_t before = PageLock::block_signals();
    PageLock::take(memory->holder_);
    mask_before_fork = before;
  }
}

void PagedMemory::after_fork() noexcept {
  PagedMemory* const memory = of_process();
  if (memory != nullptr) {
    const sigset_t before = mask_before_fork;
    PageLock::release(memory->holder_);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
}

// Not MADV_DONTFORK: other memory of the child could get the addresses.
void PagedMemory::after_fork_in_child() noexcept {
  const PagedMemory* const memory = of_process();
  if (memory == nullptr) {
    return;
  }
  for (const auto& [address, tensor] : memory->tensors_) {
    if (mmap(tensor.address, static_cast<std::size_t>(tensor.size), PROT_NONE,
             MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) == MAP_FAILED) {
      give_up("a forked child has no access to it");
    }
  }
  after_fork();
  of_parent.store(memory);
  of_this_process.store(nullptr);
}

bool PagedMemory::has(const void* address) const noexcept {
  const PageLock locked(holder_);
  return find(address) != nullptr;
}

const PagedMemory::Tensor* PagedMemory::find(const void* address) const noexcept {
  const auto* const byte = static_cast<const char*>(address);
  const auto after = tensors_.upper_bound(byte);
  if (after == tensors_.begin()) {
    return nullptr;
  }
  const Tensor& found = std::prev(after)->second;
  return byte < found.address + found.size ? &found : nullptr;
}

// ---- the signal ----

// Other libraries, such as Python's faulthandler, may have taken the signal since the last time.
// The mask of the action says which time it was.
void PagedMemory::install() {
  struct sigaction now{};
  sigaction(SIGSEGV, nullptr, &now);
  if ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == &PagedMemory::handle &&
      generation_of(now.sa_mask) == generation) {
    return;
  }
  if ((now.sa_flags & SA_SIGINFO) == 0 || now.sa_sigaction != &PagedMemory::handle) {
    previous_action = now;
  }
  generation = (generation + 1) % kGenerations;
  struct sigaction ours{};
  ours.sa_sigaction = &PagedMemory::handle;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
  ours.sa_mask = mask_of(generation);
  if (sigaction(SIGSEGV, &ours, nullptr) != 0) {
    refuse_paged("recoup: the signal handler of paged memory cannot be installed");
  }
}

// Passes a signal that is not for paged memory to the action from before. If that has installed the
// action again that it found, which may be an earlier one of this class, it will not handle the
// signal any more. (Python's faulthandler does so when it has written its report.)
void PagedMemory::pass_on(int signal, siginfo_t* info, void* context) {
  const struct sigaction& before = previous_action;
  if ((before.sa_flags & SA_SIGINFO) != 0 && before.sa_sigaction != nullptr) {
    before.sa_sigaction(signal, info, context);
  } else if ((before.sa_flags & SA_SIGINFO) == 0 && before.sa_handler != SIG_DFL &&
             before.sa_handler != SIG_IGN) {
    before.sa_handler(signal);
  } else {
    std::signal(signal, SIG_DFL);
    if (info->si_code <= 0) {
      raise(signal);  // it was sent, and no access is repeated; delivered when this handler returns
    }
    return;
  }
  struct sigaction now{};
  sigaction(signal, nullptr, &now);
  if ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == &PagedMemory::handle &&
      generation_of(now.sa_mask) != generation) {
    std::signal(signal, SIG_DFL);
  }
}

void PagedMemory::handle(int signal, siginfo_t* info, void* context) {
  const int error = errno;
  PagedMemory* const memory = of_process();
  bool found = false;
  // A signal that was sent has no address. A fault in paged memory's own code is none of a kernel.
  const bool is_access = info->si_code > 0;
  if (is_access && memory != nullptr && !PageLock::is_held_here(memory->holder_)) {
    const PageLock locked(memory->holder_);
    const Tensor* const tensor = memory->find(info->si_addr);
    found = tensor != nullptr;
    if (found) {
      memory->enter(const_cast<Tensor&>(*tensor),
                    static_cast<char*>(info->si_addr) - tensor->address);
    }
  }
  const PagedMemory* const parent = of_parent.load();
  if (is_access && !found && parent != nullptr && parent->find(info->si_addr) != nullptr) {
    give_up("a forked child has no access to it");
  }
  if (!found) {
    pass_on(signal, info, context);
  }
  errno = error;
}

// ---- allocation ----

void PagedMemory::set_window(Bytes window) {
  RECOUP_CHECK(window >= kLeastWindow && window <= kMostWindow);
  const PageLock locked(holder_);
  if (tensors_.empty()) {
    oldest_ = resident_ = 0;  // of released tensors
    block_ = block_for(window);
    group_ = std::max<std::int64_t>(kGroupBytes / block_, 1);
    patterns_.reset(block_);
  }
  const std::int64_t blocks =
      std::min((window.count() - PageCopies::kBuffer) / block_, kMostBlocks);
  while (resident_ > blocks) {
    evict_oldest(resident_ - blocks);
  }
  window_ = blocks;
  window_bytes_ = window;
}

// Of its blocks and groups.
std::int64_t PagedMemory::table_bytes(const Tensor& tensor) const {
  const std::int64_t blocks = tensor.size / block_;
  return blocks * static_cast<std::int64_t>(sizeof(Block)) +
         (blocks / group_ + 1) * static_cast<std::int64_t>(sizeof(Group));
}

void PagedMemory::map(Tensor& tensor) const {
  void* const addresses = mmap(nullptr, static_cast<std::size_t>(tensor.size), PROT_NONE,
                               MAP_SHARED | MAP_NORESERVE, resident_file_, tensor.offset);
  if (addresses == MAP_FAILED) {
    refuse_paged("recoup: no addresses for a tensor in paged memory");
  }
  tensor.address = static_cast<char*>(addresses);
  const auto size = static_cast<std::size_t>(tensor.size);
  madvise(addresses, size, MADV_DONTDUMP);
  madvise(addresses, size, MADV_NOHUGEPAGE);  // a fault would take more than a block
}

void* PagedMemory::allocate(Bytes size) {
  RECOUP_CHECK(size > Bytes(0));
  const PageLock locked(holder_);
  Tensor tensor{.address = nullptr,
                .offset = 0,
                .size = (size.count() + block_ - 1) / block_ * block_,
                .blocks = nullptr,
                .groups = nullptr,
                .writes = {}};
  const auto found = std::find_if(free_.begin(), free_.end(), [&tensor](const auto& range) {
    return range.second >= tensor.size;
  });
  if (found == free_.end()) {
    errno = ENOMEM;
    refuse_paged("recoup: the file of paged memory is full");
  }
  const auto [offset, free] = *found;
  tensor.offset = offset;
  if (free > tensor.size) {
    free_.emplace(offset + tensor.size, free - tensor.size);
  }
  free_.erase(offset);
  try {
    // Not posix_fallocate, which writes where the file system has no such function.
    if (fallocate(disk_file_, 0, offset, tensor.size) != 0) {
      refuse_paged("recoup: the disk of the spill tier has no room for a tensor in paged memory");
    }
    add(tensor);
  } catch (...) {
    give_back(offset, tensor.size);
    throw;
  }
  counters_.allocated_bytes += tensor.size;
  counters_.most_bytes = std::max(counters_.most_bytes, counters_.allocated_bytes);
  return tensor.address;
}

// Gives a tensor its table and its addresses.
void PagedMemory::add(Tensor& tensor) {
  const std::int64_t table = table_bytes(tensor);
  tensor.blocks = static_cast<Block*>(map_zeros(table));
  tensor.groups = reinterpret_cast<Group*>(tensor.blocks + tensor.size / block_);
  try {
    map(tensor);
    tensors_.emplace(tensor.address, tensor);
  } catch (...) {
    if (tensor.address != nullptr) {
      munmap(tensor.address, static_cast<std::size_t>(tensor.size));
    }
    munmap(tensor.blocks, static_cast<std::size_t>(table));
    throw;
  }
}

void PagedMemory::release(void* memory) noexcept {
  const PageLock locked(holder_);
  const auto found = tensors_.find(static_cast<const char*>(memory));
  if (found == tensors_.end()) {
    const PagedMemory* const parent = of_parent.load();
    RECOUP_CHECK(parent != nullptr && parent->find(memory) != nullptr);
    return;
  }
  const Tensor tensor = found->second;
  for (std::int64_t i = 0; i < resident_; ++i) {
    Slot& slot = ring_[static_cast<std::size_t>((oldest_ + i) % kMostBlocks)];
    slot.tensor = slot.tensor == &found->second ? nullptr : slot.tensor;
  }
  tensors_.erase(found);
  counters_.allocated_bytes -= tensor.size;
  munmap(tensor.address, static_cast<std::size_t>(tensor.size));
  munmap(tensor.blocks, static_cast<std::size_t>(table_bytes(tensor)));
  give_back(tensor.offset, tensor.size);
}

// Makes a range of both files free.
void PagedMemory::give_back(std::int64_t offset, std::int64_t size) noexcept {
  // If the disk's file system cannot, its file keeps its size.
  for (const int file : {resident_file_, disk_file_}) {
    (void)fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, size);
  }
  auto [range, added] = free_.emplace(offset, size);
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

// ---- state ----

PagedMemory::Counters PagedMemory::counters() const {
  const PageLock locked(holder_);
  Counters counters = counters_;
  counters.resident_bytes = PageCopies::kBuffer;
  for (std::int64_t i = 0; i < resident_; ++i) {
    const Slot& slot = ring_[static_cast<std::size_t>((oldest_ + i) % kMostBlocks)];
    counters.resident_bytes += slot.tensor != nullptr ? block_ : 0;
  }
  return counters;
}

void PagedMemory::reset_most() {
  const PageLock locked(holder_);
  counters_.most_bytes = counters_.allocated_bytes;
}

void PagedMemory::check() const {
  const PageLock locked(holder_);
  std::map<std::int64_t, std::int64_t> ranges = free_;
  std::int64_t present = 0;
  for (const auto& [address, tensor] : tensors_) {
    RECOUP_CHECK(address == tensor.address && ranges.emplace(tensor.offset, tensor.size).second);
    for (std::int64_t block = 0; block < tensor.size / block_; ++block) {
      present += tensor.blocks[block].state != kAbsent ? 1 : 0;
    }
  }
  std::int64_t end = 0;
  for (const auto& [offset, size] : ranges) {
    RECOUP_CHECK(offset == end && size > 0);
    end += size;
  }
  RECOUP_CHECK(end == kFileBytes && resident_ <= window_ && window_ <= kMostBlocks);
  std::int64_t used = 0;
  for (std::int64_t i = 0; i < resident_; ++i) {
    const Slot& slot = ring_[static_cast<std::size_t>((oldest_ + i) % kMostBlocks)];
    RECOUP_CHECK(slot.tensor == nullptr || of(slot).state != kAbsent);
    used += slot.tensor != nullptr ? 1 : 0;
  }
  RECOUP_CHECK(used == present);
}

}  // namespace recoup::detail
