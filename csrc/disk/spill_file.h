// SpillFile: an unnamed file that holds copies of values, as the spill tier.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "csrc/disk/copier.h"
#include "csrc/engine/base/tier_store.h"
#include "recoup/types.h"

namespace recoup::detail {

// Measured speed of long copies.
struct DiskSpeed {
  double write_ns_per_byte = 0;
  double read_ns_per_byte = 0;
  double request_ns = 0;  // time of a short copy
};

// Note [Copies past the page cache]
// The page cache is memory that the budget does not count. So the file is read and written with
// direct I/O (O_DIRECT). On a file system without it, the system is asked after each copy to drop
// the cached pages.
//
// Data that are read back are compared with what was written, by checksums (XXH3), because a disk
// may return wrong bits without an error.
//
// The file has no name, or loses it right after its creation, so nothing is left when the process
// dies. A forked child shares the file, but its parent goes on using it: the child neither reads
// nor writes it.
class SpillFile final : public TierStore {
 public:
  static constexpr std::int64_t kBlock = Copier::kBlock;

  // For tests: a replacement of the disk, and the longest time without progress.
  struct Settings {
    std::function<std::unique_ptr<BlockIo>()> make_io;  // null: io_uring, or blocking calls
    Copier::Patience patience = std::chrono::minutes(1);
  };

  // Creates the file in `directory`; empty: the system's directory for temporary files. Throws
  // std::invalid_argument if the directory is in memory, std::system_error if the file cannot be
  // created.
  explicit SpillFile(const std::string& directory) : SpillFile(directory, Settings()) {}
  SpillFile(const std::string& directory, const Settings& settings);
  ~SpillFile() override;
  SpillFile(const SpillFile&) = delete;
  SpillFile& operator=(const SpillFile&) = delete;

  // Offsets are multiples of kBlock, and a copy occupies whole blocks. It runs asynchronously until
  // it is ended, which waits for it.
  void begin_write(Bytes to, const void* from, Bytes size) override;
  // False: the write failed for any reason. The file grows as needed. In a forked child: false.
  [[nodiscard]] bool end_write(Bytes to) noexcept override;
  [[nodiscard]] std::string failure() const override;
  void begin_read(void* to, Bytes from, Bytes size) override;
  // Throws std::system_error if the data cannot be read completely. Throws std::runtime_error in a
  // forked child, when the disk makes no progress for long, and if the data differ from what was
  // written.
  void end_read(Bytes from) override;
  // Whether the bytes equal those that were last written there and can be read. In a forked child:
  // false.
  [[nodiscard]] bool holds(Bytes place, const void* bytes, Bytes size) const override;

  // Measures the speed now, by copies at the start of the file. 0: it cannot be written.
  [[nodiscard]] DiskSpeed measure();
  // The speed that the first file of the process on this disk has measured; nullopt: it cannot be
  // written.
  [[nodiscard]] std::optional<TierSpeed> speed() override;
  [[nodiscard]] const std::string& directory() const { return directory_; }

 private:
  struct Written {
    Bytes size;
    Checksums sums;
  };

  void open(bool direct);
  void make_copier(const Settings& settings);
  [[nodiscard]] DiskSpeed known_speed();
  [[nodiscard]] bool write(Bytes to, const void* from, Bytes size);
  [[nodiscard]] bool forked() const noexcept;
  void keep_nothing() noexcept;

  std::string directory_;
  int file_ = -1;
  bool direct_ = true;
  int failed_with_ = 0;  // errno of the last failed write; 0: none, or the disk did not respond
  pid_t owner_;
  std::unordered_map<std::int64_t, Written> written_;  // by offset: what was last written there
  std::unique_ptr<Copier> copier_;
};

}  // namespace recoup::detail
