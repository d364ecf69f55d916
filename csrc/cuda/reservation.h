// Addresses of a device that stay, with memory behind some of them: what an arena lies on that
// grows and gives back without moving.
//
//   addresses   |---------------------------------------------|   size()
//   chunks      | 0 | 1 | 2 |       | 5 |  6  |                   each mapped and unmapped as one
#pragma once

#include <cstdint>
#include <map>

#include "csrc/cuda/runtime.h"

namespace recoup::detail::cuda {

// Not thread safe. When a method throws CudaError nothing has changed.
class Reservation {
 public:
  // Takes `addresses` (> 0) bytes of them, rounded up to whole granules, and no memory. The runtime
  // must outlive it.
  Reservation(Runtime& runtime, int device, Bytes addresses);
  // Waits until the device is done, if there is memory.
  ~Reservation();
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;

  [[nodiscard]] char* base() const { return base_; }
  [[nodiscard]] Bytes size() const { return size_; }      // addresses
  [[nodiscard]] Bytes backed() const { return backed_; }  // those with memory, wherever they are

  // Puts memory behind all of the first `size` (<= size()) bytes, rounded up to whole granules.
  // What has some keeps it, here and above. False when the device has not so much; then nothing has
  // changed, but the host may have waited for the device.
  //
  // The memory comes in chunks of at most a 512th of `size`, rounded up to whole granules: a call
  // maps at most 512, and one more for each hole that it fills.
  [[nodiscard]] bool back(Bytes size);
  // Takes the memory from every chunk that lies wholly in [from, to). Waits until the device is
  // done, if there is one; backed() tells by how much it fell.
  void give_back(Bytes from, Bytes to) noexcept;

  // Recounts everything; throws InternalError on the first difference.
  void check() const;

 private:
  // Memory from its making to its end, unless the device had none.
  class Chunk {
   public:
    Chunk(Runtime& runtime, int device, char* at, Bytes size);
    ~Chunk();
    Chunk(const Chunk&) = delete;
    Chunk& operator=(const Chunk&) = delete;

    [[nodiscard]] bool mapped() const { return mapped_; }
    [[nodiscard]] const char* at() const { return at_; }
    [[nodiscard]] Bytes size() const { return size_; }

   private:
    Runtime& runtime_;
    int device_;
    char* at_;
    Bytes size_;
    bool mapped_;
  };
  using Chunks = std::map<Bytes, Chunk>;  // by offset

  [[nodiscard]] Bytes whole_granules(Bytes size) const;
  // Adds chunks of at most `most` to `fresh` that fill [from, to). False when the device has not so
  // much.
  [[nodiscard]] bool fill(Chunks& fresh, Bytes from, Bytes to, Bytes most);

  Runtime& runtime_;
  int device_;
  Bytes granularity_;
  Bytes size_;
  char* base_;
  Chunks chunks_;
  Bytes backed_{0};
};

}  // namespace recoup::detail::cuda
