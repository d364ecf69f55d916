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
// The action that SIGSEGV had before.
struct sigaction previous_action{};

[[noreturn]] void refuse_paged(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
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
    pthread_atfork(&PagedMemory::before_fork, &PagedMemory::after_fork,
                   &PagedMemory::after_fork_in_child);
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
    : owner_(getpid()), ring_(std::make_unique<Slot[]>(kMostBlocks)) {
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
  copies_.use(resident_file_, disk_file_, direct_);
}

// ---- fork ----

// The child's tables must be whole: its handler looks for the tensor that it has no access to.
void PagedMemory::before_fork() noexcept { PageLock::take(of_process()->holder_); }
void PagedMemory::after_fork() noexcept { PageLock::release(of_process()->holder_); }
// The mappings do not exist in the child, but for systems without MADV_DONTFORK, such as qemu's
// emulation of programs.
void PagedMemory::after_fork_in_child() noexcept {
  for (const auto& [address, tensor] : of_process()->tensors_) {
    (void)mprotect(tensor.address, static_cast<std::size_t>(tensor.size), PROT_NONE);
  }
  after_fork();
}

bool PagedMemory::has(const void* address) const noexcept {
  if (getpid() != owner_) {
    return false;
  }
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
  static std::atomic<const void*> last_address{nullptr};
  static std::atomic<std::uintptr_t> last_instruction{0};
  const std::uintptr_t instruction = instruction_of(context);
  const struct sigaction& before = previous_action;
  const bool same_address = last_address.exchange(info->si_addr) == info->si_addr;
  const bool again = last_instruction.exchange(instruction) == instruction && same_address;
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
  // A signal that was sent has no address. A fault in paged memory's own code is none of a kernel.
  if (memory == nullptr || info->si_code <= 0 || PageLock::is_held_here(memory->holder_)) {
    pass_on(signal, info, context);
    return;
  }
  const int error = errno;
  bool found = false;
  {
    const PageLock locked(memory->holder_);
    const Tensor* const tensor = memory->find(info->si_addr);
    found = tensor != nullptr;
    if (found) {
      if (getpid() != memory->owner_) {
        give_up("a forked child has no access to it");
      }
      memory->enter(const_cast<Tensor&>(*tensor),
                    static_cast<char*>(info->si_addr) - tensor->address);
    }
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
  // A child's blocks would be those of its parent.
  madvise(addresses, size, MADV_DONTFORK);
  madvise(addresses, size, MADV_DONTDUMP);
  madvise(addresses, size, MADV_NOHUGEPAGE);  // a fault would take more than a block
}

void* PagedMemory::allocate(Bytes size) {
  RECOUP_CHECK(size > Bytes(0) && getpid() == owner_);
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
  if (const int error = posix_fallocate(disk_file_, offset, tensor.size); error != 0) {
    // What it has got so far.
    (void)fallocate(disk_file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, tensor.size);
    errno = error;
    refuse_paged("recoup: the disk of the spill tier has no room for a tensor in paged memory");
  }
  const std::int64_t table = table_bytes(tensor);
  tensor.blocks = static_cast<Block*>(map_zeros(table));
  tensor.groups = reinterpret_cast<Group*>(tensor.blocks + tensor.size / block_);
  try {
    map(tensor);
    tensors_.emplace(tensor.address, tensor);
  } catch (...) {
    munmap(tensor.blocks, static_cast<std::size_t>(table));
    throw;
  }
  free_.erase(found);
  if (free > tensor.size) {
    free_.emplace(offset + tensor.size, free - tensor.size);
  }
  counters_.allocated_bytes += tensor.size;
  counters_.most_bytes = std::max(counters_.most_bytes, counters_.allocated_bytes);
  return tensor.address;
}

void PagedMemory::release(void* memory) noexcept {
  if (getpid() != owner_) {
    return;  // the file is the parent's
  }
  const PageLock locked(holder_);
  const auto found = tensors_.find(static_cast<const char*>(memory));
  RECOUP_CHECK(found != tensors_.end());
  const Tensor tensor = found->second;
  for (std::int64_t i = 0; i < resident_; ++i) {
    Slot& slot = ring_[static_cast<std::size_t>((oldest_ + i) % kMostBlocks)];
    slot.tensor = slot.tensor == &found->second ? nullptr : slot.tensor;
  }
  tensors_.erase(found);
  counters_.allocated_bytes -= tensor.size;
  munmap(tensor.address, static_cast<std::size_t>(tensor.size));
  munmap(tensor.blocks, static_cast<std::size_t>(table_bytes(tensor)));
  // If the disk's file system cannot, its file keeps its size.
  for (const int file : {resident_file_, disk_file_}) {
    (void)fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, tensor.offset, tensor.size);
  }
  auto [range, added] = free_.emplace(tensor.offset, tensor.size);
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
