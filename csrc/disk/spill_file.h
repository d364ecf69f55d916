// SpillFile: a file without a name that holds copies of values: the spill tier's bytes.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>

#include "csrc/disk/copier.h"
#include "recoup/types.h"

namespace recoup::detail {

// What a long copy takes, measured.
struct DiskSpeed {
  double write_ns_per_byte = 0;
  double read_ns_per_byte = 0;
  double request_ns = 0;  // of a short one
};

// Note [Copies beside the page cache]
// What the system keeps of a file in memory is memory that the budget does not count. So the file
// is read and written directly (O_DIRECT). A file system that knows no direct copies is told after
// each that nothing is to be kept.
//
// What comes back is compared with what was written, by checksums (XXH3): a disk may give other
// bits and say nothing.
//
// The file has no name from its first moment, or from right behind it, so nothing is left when the
// process dies. A forked child has the same file, but its parent goes on with what is in it: the
// child neither reads nor writes it.
class SpillFile {
 public:
  static constexpr std::int64_t kBlock = Copier::kBlock;

  // For tests: what stands for the disk, and how long it may do nothing.
  struct Settings {
    std::function<std::unique_ptr<BlockIo>()> make_io;  // none: io_uring, or calls that wait
    Copier::Patience patience = std::chrono::minutes(1);
  };

  // In `directory`; empty: the system's for temporary files. Throws std::invalid_argument where
  // that is memory, std::system_error where no file can be made.
  explicit SpillFile(const std::string& directory) : SpillFile(directory, Settings()) {}
  SpillFile(const std::string& directory, const Settings& settings);
  ~SpillFile();
  SpillFile(const SpillFile&) = delete;
  SpillFile& operator=(const SpillFile&) = delete;

  // Places are multiples of kBlock, and what a size lacks to one is taken too. Each copy goes on
  // beside the program until it is ended, which waits for it.
  void begin_write(Bytes to, const void* from, Bytes size);
  // False: it cannot be written, whatever the reason. The file grows. In a child: false.
  [[nodiscard]] bool end_write(Bytes to) noexcept;
  void begin_read(void* to, Bytes from, Bytes size);
  // Throws std::system_error when not all of it can be read; std::runtime_error in a child, when
  // the disk does nothing for long, and when it is not what was written there.
  void end_read(Bytes from);
  // Whether the bytes are those that were written there last, and can be read. In a child: false.
  [[nodiscard]] bool holds(Bytes place, const void* bytes, Bytes size) const;

  // Measured now, by copies at its start. 0: it cannot be written.
  [[nodiscard]] DiskSpeed measure();
  // Measured by the first file of the process on this disk.
  [[nodiscard]] DiskSpeed speed();
  [[nodiscard]] const std::string& directory() const { return directory_; }

 private:
  struct Written {
    Bytes size;
    Checksums sums;
  };

  void open(bool direct);
  void make_copier(const Settings& settings);
  [[nodiscard]] bool write(Bytes to, const void* from, Bytes size);
  [[nodiscard]] bool forked() const noexcept;
  void keep_nothing() noexcept;

  std::string directory_;
  int file_ = -1;
  bool direct_ = true;
  pid_t owner_;
  std::unordered_map<std::int64_t, Written> written_;  // by place: what was written there last
  std::unique_ptr<Copier> copier_;
};

}  // namespace recoup::detail
