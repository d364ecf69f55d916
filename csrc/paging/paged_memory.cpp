#include "csrc/paging/paged_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <iterator>
#include <mutex>
#include <system_error>

#include "csrc/base/check.h"
#include "csrc/disk/unnamed_file.h"
#include "csrc/paging/handler_calls.h"
#include "csrc/paging/page_lock.h"

namespace recoup::detail {
namespace {

[[noreturn]] void refuse_paged(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

bool write_page(int file, const char* page) {
  const auto size = static_cast<ssize_t>(sysconf(_SC_PAGESIZE));
  return pwrite(file, page, static_cast<std::size_t>(size), 0) == size;
}

// A file system may open a file for direct I/O, and then refuse blocks of a page.
bool refuses_pages(int file, const char* page) {
  const bool refuses = !write_page(file, page) && errno == EINVAL;
  (void)!ftruncate(file, 0);
  return refuses;
}

// Whether more than the page that was written to a file in memory is resident. With huge pages of
// shared memory, the system takes hundreds of them.
bool has_huge_pages(int file) {
  constexpr std::int64_t kUnit = 512;  // bytes, of st_blocks
  struct stat state{};
  return fstat(file, &state) == 0 && state.st_blocks * kUnit > sysconf(_SC_PAGESIZE);
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

std::int64_t PagedMemory::block_for(Bytes window) {
  const auto least = static_cast<std::uint64_t>(window.count() / kMostBlocks);
  return std::clamp(static_cast<std::int64_t>(std::bit_ceil(least)),
                    static_cast<std::int64_t>(sysconf(_SC_PAGESIZE)), kLargestBlock);
}

PagedMemory::PagedMemory(const std::string& directory, const PagedMemory* parent)
    : parent_(parent), ring_(std::make_unique<Slot[]>(kMostBlocks)) {
  use(directory);
  resident_file_ = memfd_create("recoup-paged", MFD_CLOEXEC);
  const char* problem = nullptr;
  if (resident_file_ < 0 || ftruncate(resident_file_, kFileBytes) != 0 ||
      !write_page(resident_file_, copies_.bytes())) {
    problem = "recoup: no file in memory for the resident part of paged memory";
  } else if (has_huge_pages(resident_file_)) {
    errno = ENOTSUP;
    problem =
        "recoup: more than a page of a file in memory becomes resident at a time, so paged memory "
        "would exceed its window; write advise or never to "
        "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
  }
  if (problem != nullptr) {
    const int error = errno;
    close(disk_file_);
    if (resident_file_ >= 0) {
      close(resident_file_);
    }
    errno = error;
    refuse_paged(problem);
  }
  (void)fallocate(resident_file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kLargestBlock);
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
  UnnamedFile file = make_unnamed_file(place, true);
  if (file.direct && refuses_pages(file.descriptor, copies_.bytes())) {
    close(file.descriptor);
    file = make_unnamed_file(place, false);
  }
  if (disk_file_ >= 0) {
    close(disk_file_);
  }
  disk_file_ = file.descriptor;
  direct_ = file.direct;
  directory_ = place;
  copies_.use(resident_file_, disk_file_, direct_);
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
    RECOUP_CHECK(is_of_ancestor(memory));
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
