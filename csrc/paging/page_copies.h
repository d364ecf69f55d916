// PageCopies: copies blocks of paged memory between the file in memory and the file on disk.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

namespace recoup::detail {

// Each method but the constructor is usable in a signal handler. None returns if it fails: the
// process ends with a message.
class PageCopies {
 public:
  static constexpr std::int64_t kBuffer = 1 << 20;  // bytes that can be copied together
  static constexpr std::size_t kMostRuns = 256;

  // A part of both files, in bytes.
  struct Run {
    std::int64_t offset;
    std::int64_t size;
  };
  // At most kMostRuns runs, of at most kBuffer bytes together.
  using Runs = std::span<const Run>;

  // Throws std::system_error.
  PageCopies();
  ~PageCopies();
  PageCopies(const PageCopies&) = delete;
  PageCopies& operator=(const PageCopies&) = delete;

  // `direct`: copies to and from the disk go past the page cache.
  void use(int memory, int disk, bool direct);
  // The bytes of the runs, one after the other.
  [[nodiscard]] const char* bytes() const { return buffer_; }
  void from_memory(Runs runs);
  void to_memory(Runs runs);
  void from_disk(Runs runs);
  void to_disk(Runs runs);

 private:
  struct Ring;  // of io_uring
  template <class Copy>
  void each(Runs runs, const char* failure, Copy&& copy);
  bool copy_in_ring(Runs runs, bool writes);
  void drop_from_page_cache(Runs runs) const;

  char* buffer_ = nullptr;
  int memory_ = -1;
  int disk_ = -1;
  bool direct_ = true;
  std::unique_ptr<Ring> ring_;  // null: blocking calls
};

}  // namespace recoup::detail
