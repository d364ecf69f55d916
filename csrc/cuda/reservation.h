// Reservation: fixed addresses of a device, parts of which are backed by memory. An arena in it can
// grow and return memory without moving.
//
//   addresses   |---------------------------------------------|   size()
//   chunks      | 0 | 1 | 2 |       | 5 |  6  |                   each mapped and unmapped as one
#pragma once

#include <cstdint>
#include <map>

#include "csrc/cuda/runtime.h"

namespace recoup::detail::cuda {

// Not thread safe. If a method throws CudaError, nothing has changed.
class Reservation {
 public:
  // Reserves `addresses` (> 0) bytes of addresses, rounded up to whole granules, without memory.
  // The runtime must outlive it.
  Reservation(Runtime& runtime, int device, Bytes addresses);
  // Waits for the device if there is memory.
  ~Reservation();
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;

  [[nodiscard]] char* base() const { return base_; }
  [[nodiscard]] Bytes size() const { return size_; }  // size of the addresses
  // Bytes that are backed by memory, anywhere.
  [[nodiscard]] Bytes backed() const { return backed_; }

  // Backs the first `size` (<= size()) bytes, rounded up to whole granules, with memory. Memory
  // that is already there stays, also beyond `size`. False if the device has not enough memory.
  // Then nothing has changed, but the host may have waited for the device.
  //
  // The memory is mapped in chunks of at most 1/512 of `size`, rounded up to whole granules: a call
  // maps at most 512 chunks, plus one for each hole that it fills.
  [[nodiscard]] bool back(Bytes size);
  // Returns the memory of every chunk that lies completely in [from, to). Waits for the device if
  // there is such a chunk; the decrease of backed() is the number of bytes returned.
  void give_back(Bytes from, Bytes to) noexcept;

  // Verifies all counts; throws InternalError on the first difference.
  void check() const;

 private:
  // A mapped range of memory; not mapped if the device had not enough.
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
  // Adds chunks of at most `most` bytes to `fresh` that fill [from, to). False if the device has
  // not enough memory.
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
