// PagedMemory: memory of which only a window is resident. The rest is in a file.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "csrc/paging/access_patterns.h"
#include "csrc/paging/page_copies.h"
#include "recoup/types.h"

namespace recoup::detail {

// Note [Paged memory]
// ~~~~~~~~~~~~~~~~~~~
// A kernel needs an address for each byte of its operands and results, but not all bytes at the
// same time. Paged memory has addresses for tensors of any size. A block of it is resident, or its
// address range has no access rights. The first access to such a block raises SIGSEGV. The handler
// makes the block resident on the thread that raised it, and the blocks of the accesses that it
// predicts (Note [Access patterns]). If the window is full, it evicts the blocks that have been
// resident for the longest time. It returns to the kernel, which repeats the access. So every
// kernel gives the same bits as in other memory, whatever its order of accesses is.
//
// The resident blocks are pages of a file in memory (memfd), in which a tensor has the same offset
// as in the file on disk. They are filled and read through its descriptor, while their addresses
// have no access rights: no thread can see, or write, a block that is being copied. To evict a
// block gives its pages back to the system.
//
// The smaller a block is, the fewer bytes are read for an access that is alone. But each resident
// block may be a mapping of its own, of which a process has 65,530 (the default of
// vm.max_map_count). So blocks are small in a small window, and larger in a larger one.
//
// The file on disk is extended when memory is allocated, so a full disk is an error of the
// allocation. If the disk fails later, the handler cannot report an error to the program: it writes
// a message and ends the process. Blocks that are read are compared with checksums of what was
// written.
//
// System calls do not raise SIGSEGV: one that gets an address in a block that is not resident fails
// with EFAULT. A forked child has no access to its parent's tensors: their addresses have no access
// rights there, and stay taken. What it pages itself is in files of its own.
class PagedMemory {
 public:
  static constexpr std::int64_t kLargestBlock = 256 << 10;  // bytes
  static constexpr std::int64_t kMostBlocks = 16384;        // resident
  // A kernel reads and writes several tensors on several threads, some in many rows at a time.
  static constexpr Bytes kLeastWindow{16 << 20};
  static constexpr Bytes kMostWindow{kMostBlocks * kLargestBlock};

  struct Counters {
    std::int64_t allocated_bytes = 0;  // now
    std::int64_t most_bytes = 0;       // the most that were allocated since the last reset_most
    std::int64_t resident_bytes = 0;   // now
    std::int64_t read_bytes = 0;       // from the disk
    std::int64_t written_bytes = 0;    // to the disk
    std::int64_t disk_ns = 0;          // time of both
    std::int64_t misses = 0;           // accesses that had to wait for the handler
  };

  // The process's paged memory, its file in `directory`; empty: the system's directory for
  // temporary files. The first call makes it. While memory is allocated, the file stays where it
  // is. Throws std::invalid_argument if the directory is in memory, std::system_error if the files
  // cannot be had.
  static PagedMemory& in(const std::string& directory);
  // Null: no memory of the process is paged.
  [[nodiscard]] static PagedMemory* of_process() noexcept;
  // Locks the memory while the process forks. Locks that a thread may hold when it runs a kernel
  // must be taken before a fork by handlers that are registered after this call.
  static void watch_forks();
  // The size of a block in a window, in bytes.
  [[nodiscard]] static std::int64_t block_for(Bytes window);

  PagedMemory(const PagedMemory&) = delete;
  PagedMemory& operator=(const PagedMemory&) = delete;

  // The most bytes that are resident from now on, the copy buffer included. From kLeastWindow to
  // kMostWindow. While memory is allocated, blocks keep their size, so that fewer bytes than the
  // window may be resident.
  void set_window(Bytes window);
  // Allocates zeros. Throws std::system_error if the disk or the address space is full.
  [[nodiscard]] void* allocate(Bytes size);
  // Ignores the memory of a process from which this one was forked.
  void release(void* memory) noexcept;
  [[nodiscard]] bool has(const void* address) const noexcept;
  [[nodiscard]] Bytes window() const { return window_bytes_; }
  [[nodiscard]] Counters counters() const;
  void reset_most();
  void check() const;

 private:
  static constexpr std::int64_t kGroupBytes = 64 << 10;
  static constexpr std::int64_t kFileBytes = std::int64_t{1} << 42;

  enum State : std::uint8_t { kAbsent, kClean, kDirty };
  struct Block {
    std::uint64_t state : 2;
    std::uint64_t on_disk : 1;  // else it is zero when it is absent
    std::uint64_t sum : 61;     // of the checksum
  };
  // Neighboring blocks. The numbers of the last two misses in it; 0: none.
  struct Group {
    std::uint32_t last;
    std::uint32_t before_last;
  };
  // Whether the blocks of a tensor that are read are mostly written, too.
  class Writes {
   public:
    void written(int blocks) { score_ = std::min(score_ + blocks, kMost); }
    void only_read() { score_ = std::max(score_ - 4, -kMost); }
    // While writes are expected, every eighth block is treated as only read, to notice a change.
    [[nodiscard]] bool expected() { return score_ > 0 && ++tries_ % 8 != 0; }

   private:
    static constexpr int kMost = 64;
    int score_ = 0;
    unsigned tries_ = 0;
  };
  struct Tensor {
    char* address;
    std::int64_t offset;  // in both files, bytes
    std::int64_t size;    // bytes
    Block* blocks;
    Group* groups;
    Writes writes;
  };
  // A resident block. `tensor` is null after its release.
  struct Slot {
    Tensor* tensor;
    std::int64_t block;
  };
  using Slots = std::span<const Slot>;
  using Batch = std::array<Slot, PageCopies::kMostRuns>;

  // `parent`: of the nearest ancestor of this process that has paged memory; null: none has.
  PagedMemory(const std::string& directory, const PagedMemory* parent);

  static void handle(int signal, siginfo_t* info, void* context);
  static void pass_on(int signal, siginfo_t* info, void* context);
  static void before_fork() noexcept;
  static void after_fork() noexcept;
  static void after_fork_in_child() noexcept;
  void install();
  void use(const std::string& directory);
  void map(Tensor& tensor) const;
  void add(Tensor& tensor);
  void give_back(std::int64_t offset, std::int64_t size) noexcept;
  [[nodiscard]] std::int64_t table_bytes(const Tensor& tensor) const;
  [[nodiscard]] const Tensor* find(const void* address) const noexcept;
  [[nodiscard]] static bool is_of_ancestor(const void* address) noexcept;
  // ---- in the handler, under the lock ----
  void enter(Tensor& tensor, std::int64_t offset);
  // The number of blocks in found_.
  std::size_t predicted(Tensor& tensor, std::int64_t offset);
  std::size_t with_groups(std::size_t size);
  void make_resident(Slots slots, bool writes);
  void read_in(Slots slots);
  void evict_oldest(std::int64_t least);
  void write_out(Slots slots);
  void protect(Slots slots, int rights) const;
  // Gives the pages of blocks back to the system.
  void drop(Slots slots) const;
  [[nodiscard]] std::int64_t most_in_batch() const;
  [[nodiscard]] Block& of(const Slot& slot) const { return slot.tensor->blocks[slot.block]; }
  [[nodiscard]] std::int64_t offset(const Slot& slot) const {
    return slot.tensor->offset + slot.block * block_;
  }
  template <class Call>
  void each_run(Slots slots, Call&& call) const;
  [[nodiscard]] PageCopies::Runs runs_of(Slots slots);

  const PagedMemory* const parent_;
  mutable std::atomic<pid_t> holder_{0};  // thread that has the lock
  int resident_file_ = -1;
  std::string directory_;
  int disk_file_ = -1;
  bool direct_ = true;
  PageCopies copies_;
  AccessPatterns patterns_;
  std::uint32_t events_ = 0;  // misses, with those that were predicted
  // What the handler would have on its stack.
  std::array<PageCopies::Run, PageCopies::kMostRuns> runs_{};
  Batch found_{};
  Batch evicted_{};
  Batch some_{};
  // The resident blocks in the order in which they became resident: kMostBlocks, of which resident_
  // are used from oldest_ on. A ring: the handler cannot allocate.
  std::unique_ptr<Slot[]> ring_;
  std::int64_t oldest_ = 0;
  std::int64_t resident_ = 0;  // blocks, with those of released tensors
  std::int64_t window_ = 0;    // blocks
  std::int64_t block_ = 0;     // bytes
  std::int64_t group_ = 1;     // blocks
  Bytes window_bytes_{0};
  std::map<std::int64_t, std::int64_t> free_;           // of the files: offset and size, in bytes
  std::map<const char*, Tensor, std::less<>> tensors_;  // by address
  Counters counters_;
};

}  // namespace recoup::detail
