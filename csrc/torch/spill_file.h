// SpillFile: a file without a name that holds copies of values: the second tier's bytes.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <system_error>
#include <unordered_map>

#include "csrc/engine/tier.h"
#include "recoup/types.h"

namespace recoup::detail {

// Note [Copies beside the page cache]
// What the system keeps of a file in memory is memory that the budget does not count. So the file
// is read and written directly (O_DIRECT), through one buffer: direct copies want addresses, places
// and sizes in whole blocks of the disk, and touch no byte beside the value. A file system that
// knows no direct copies is told after each that nothing is to be kept.
//
// What comes back is compared with what was written, by checksums (XXH3): a disk may give other
// bits and say nothing.
//
// The file has no name from its first moment, or from right behind it, so nothing is left when the
// process dies. A forked child has the same file, but its parent goes on with what is in it: the
// child neither reads nor writes it.
class SpillFile {
 public:
  // What is written at once: places are multiples of it, and what a size lacks to one is written
  // too.
  static constexpr std::int64_t kBlock = 4096;

  // In `directory`; empty: the system's for temporary files. Throws std::invalid_argument where
  // that is memory, std::system_error where no file can be made.
  explicit SpillFile(const std::string& directory);
  ~SpillFile();
  SpillFile(const SpillFile&) = delete;
  SpillFile& operator=(const SpillFile&) = delete;

  // False: it cannot be written, whatever the reason. The file grows. In a child: false.
  [[nodiscard]] bool write(Bytes to, const void* from, Bytes size) noexcept;
  // Throws std::system_error when not all of it can be read; std::runtime_error in a child, and
  // when it is not what was written there.
  void read(void* to, Bytes from, Bytes size);
  // Measured now, by copies at its start.
  [[nodiscard]] TierSpeed measure();
  [[nodiscard]] const std::string& directory() const { return directory_; }

 private:
  struct Free {
    void operator()(void* memory) const noexcept;
  };
  void open(bool direct);
  [[nodiscard]] bool forked() const noexcept;
  void keep_nothing() noexcept;
  [[nodiscard]] bool copy_out(Bytes to, const void* from, Bytes size) noexcept;
  void copy_in(void* to, Bytes from, Bytes size);

  std::string directory_;
  int file_ = -1;
  bool direct_ = true;
  pid_t owner_;
  std::unique_ptr<void, Free> buffer_;
  struct Written {
    Bytes size;
    std::uint64_t sum = 0;
  };
  std::unordered_map<std::int64_t, Written> written_;  // by place: what was written there last
};

}  // namespace recoup::detail
