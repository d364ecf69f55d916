// PagedMemory: memory of which only a window is resident. The rest is in a file.
#pragma once

#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "csrc/disk/handler_calls.h"
#include "recoup/types.h"

namespace recoup::detail {

// Note [Paged memory]
// ~~~~~~~~~~~~~~~~~~~
// A kernel needs an address for each byte of its operands and results, but not all bytes at the
// same time. Paged memory has addresses for tensors of any size. A block of it is resident, or its
// address range has no access rights. The first access to such a block raises SIGSEGV. The handler
// makes the block resident on the thread that raised it, evicts the block that has been resident
// for the longest time if the window is full, and returns to the kernel, which repeats the access.
// So every kernel gives the same bits as in other memory, whatever its order of accesses is.
//
// The resident blocks are pages of a file in memory (memfd). They are filled and read through its
// descriptor, while their addresses have no access rights: no thread can see, or write, a block
// that is being copied. To evict a block gives its pages back to the system.
//
// The file on disk is extended when memory is allocated, so a full disk is an error of the
// allocation. If the disk fails later, the handler cannot report an error to the program: it writes
// a message and ends the process. Blocks that are read are compared with checksums of what was
// written.
//
// System calls do not raise SIGSEGV: one that gets an address in a block that is not resident fails
// with EFAULT. A forked child has no access at all.
class PagedMemory {
 public:
  static constexpr std::int64_t kBlock = kPagedBlock;
  // A kernel reads and writes several tensors on several threads, some in many rows at a time.
  static constexpr Bytes kLeastWindow{64 * kBlock};
  // Each resident block may be a mapping of its own, of which a process has 65,530 (the default of
  // vm.max_map_count).
  static constexpr Bytes kMostWindow{16384 * kBlock};

  struct Counters {
    std::int64_t allocated_bytes = 0;  // now
    std::int64_t most_bytes = 0;       // the most that were allocated since the last reset_most
    std::int64_t resident_bytes = 0;   // now
    std::int64_t read_bytes = 0;       // from the disk
    std::int64_t written_bytes = 0;    // to the disk
    std::int64_t disk_ns = 0;          // time of both
  };

  // That of the process, with its file in `directory`; empty: the system's directory for temporary
  // files. The first call makes it. While memory is allocated, the file stays where it is. Throws
  // std::invalid_argument if the directory is in memory, std::system_error if the file or the
  // addresses cannot be had.
  static PagedMemory& in(const std::string& directory);
  // Null: no memory of the process is paged.
  [[nodiscard]] static PagedMemory* of_process() noexcept;

  PagedMemory(const PagedMemory&) = delete;
  PagedMemory& operator=(const PagedMemory&) = delete;

  // The most bytes that are resident from now on, the copy buffer included. From kLeastWindow to
  // kMostWindow.
  void set_window(Bytes window);
  // Zeros. Throws std::system_error if the disk or the address range is full.
  [[nodiscard]] void* allocate(Bytes size);
  // In a forked child: nothing.
  void release(void* memory) noexcept;
  // False in a forked child, whose addresses there are of other memory.
  [[nodiscard]] bool has(const void* address) const noexcept;
  [[nodiscard]] Bytes window() const { return Bytes((window_ + 1) * kBlock); }
  [[nodiscard]] Counters counters() const;
  void reset_most();
  void check() const;

 private:
  static constexpr std::int64_t kAddresses = std::int64_t{1} << 42;  // bytes
  static constexpr std::int64_t kBlocks = kAddresses / kBlock;

  enum class State : std::uint8_t { kAbsent, kClean, kDirty };
  struct Block {
    State state = State::kAbsent;
    bool on_disk = false;  // else it is zero when it is absent
    std::uint64_t sum = 0;
  };
  // Usable in a signal handler.
  class Locked;

  explicit PagedMemory(const std::string& directory);

  static void handle(int signal, siginfo_t* info, void* context);
  static void pass_on(int signal, siginfo_t* info, void* context);
  void install();
  void use(const std::string& directory);
  void reserve_addresses();
  [[nodiscard]] bool in_range(const void* address) const noexcept {
    return address >= base_ && address < base_ + kAddresses;
  }
  [[nodiscard]] bool is_allocated(std::int64_t block) const noexcept;
  void enter(std::int64_t block);
  void evict_oldest();
  void drop(std::int64_t block);
  void protect(std::int64_t block, int rights) const;
  void write_out(std::int64_t block);
  void read_in(std::int64_t block);
  [[nodiscard]] char* at(std::int64_t block) const { return base_ + block * kBlock; }

  pid_t owner_;
  mutable std::atomic_flag lock_ = ATOMIC_FLAG_INIT;
  char* base_ = nullptr;
  int resident_file_ = -1;
  std::string directory_;
  int disk_file_ = -1;
  bool direct_ = true;
  char* buffer_ = nullptr;   // of one block, for copies
  Block* blocks_ = nullptr;  // kBlocks of them
  // The resident blocks in the order in which they became resident. A ring: its capacity is fixed,
  // as the handler cannot allocate.
  std::unique_ptr<std::int64_t[]> ring_;
  std::int64_t ring_size_ = 0;
  std::int64_t oldest_ = 0;
  std::int64_t resident_ = 0;                       // blocks
  std::int64_t window_ = 0;                         // blocks
  std::map<std::int64_t, std::int64_t> free_;       // first block and number of blocks
  std::map<std::int64_t, std::int64_t> allocated_;  // the same
  Counters counters_;
};

}  // namespace recoup::detail
