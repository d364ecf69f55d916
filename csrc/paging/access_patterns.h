// AccessPatterns: predicts the next accesses of a thread to a tensor from those before.
#pragma once

#include <array>
#include <cstdint>

namespace recoup::detail {

// Note [Access patterns]
// ~~~~~~~~~~~~~~~~~~~~~~
// Kernels access tensors in sequence, or in steps of the same length, such as the columns of a
// matrix. Each such stream is detected by the addresses of its misses: accesses to blocks that are
// not resident. A miss at the predicted address confirms the stream, and multiplies the number
// of accesses that are predicted, so that wrong predictions are few compared to the right ones
// before them. Blocks of predicted accesses are resident by the time of these accesses, so the next
// miss of the stream is the first access after them.
//
// Usable in a signal handler: no memory is allocated, and no lock is taken.
class AccessPatterns {
 public:
  // What a stream belongs to: a thread, and a tensor, or the writes to one.
  struct Source {
    std::int32_t thread = 0;
    std::int64_t tensor = 0;
    bool writes = false;
    friend bool operator==(const Source&, const Source&) = default;
  };
  struct Prediction {
    std::int64_t stride = 0;  // bytes from one access to the next
    std::int64_t count = 0;   // predicted accesses
  };

  // Forgets all streams. `block`: its size in bytes.
  void reset(std::int64_t block);
  // The most accesses that are predicted.
  struct Limits {
    std::int64_t at_once;   // for one stream
    std::int64_t together;  // for all streams
  };
  // A miss at `offset`, in bytes from the tensor's begin.
  Prediction miss(const Source& source, std::int64_t offset, const Limits& limits);

 private:
  static constexpr std::size_t kStreams = 128;
  static constexpr std::int64_t kGrowth = 4;
  // The last misses, in which an active stream has one.
  static constexpr std::uint64_t kActive = 64;

  struct Stream {
    Source source;
    std::int64_t last = 0;      // offset of its last miss
    std::int64_t stride = 0;    // bytes; 0: unknown
    std::int64_t expected = 0;  // offset of the next miss, if the stride is right
    std::int64_t depth = 0;     // accesses that were predicted at the last miss
    std::uint64_t used = 0;     // number of that miss; 0: the entry is free
  };
  [[nodiscard]] std::int64_t active() const;
  [[nodiscard]] Stream& find(const Source& source, std::int64_t offset);
  [[nodiscard]] bool is_recent(const Stream& stream) const {
    return stream.used + kActive > misses_;
  }
  [[nodiscard]] bool is_expected(const Stream& stream, std::int64_t offset) const;
  [[nodiscard]] bool is_next(const Stream& stream, std::int64_t offset) const;

  std::array<Stream, kStreams> streams_{};
  std::int64_t block_ = 1;
  std::uint64_t misses_ = 0;
};

}  // namespace recoup::detail
