// Memory of a session's pool for kernels and for the program.
#pragma once

#include <c10/core/Allocator.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "csrc/cuda/stream_order.h"
#include "csrc/engine/program/engine.h"
#include "csrc/torch/session/delay.h"
#include "csrc/torch/storages/engine_lock.h"
#include "csrc/torch/storages/storages.h"
#include "csrc/torch/storages/tensor_device.h"
#include "recoup/errors.h"
#include "recoup/types.h"

namespace recoup::detail {

class TensorMemory {
 public:
  // The references must outlive this object. `session` identifies the session in its errors.
  struct Neighbors {
    Engine& engine;
    TensorDevice& device;
    Storages& storages;
    EngineMutex& mutex;
    const Delay& delay;
    const void* session;
  };
  explicit TensorMemory(const Neighbors& neighbors) : to_(neighbors) {}
  TensorMemory(const TensorMemory&) = delete;
  TensorMemory& operator=(const TensorMemory&) = delete;

  // ---- for any thread; these take the lock ----
  // Whether an allocation of this thread belongs to the session's program.
  [[nodiscard]] bool in_scope(std::size_t nbytes) const;
  // Memory for a kernel on the CPU, or for work on a stream of a GPU. Throws PoolOutOfMemory, on a
  // GPU KernelOutOfMemory.
  c10::DataPtr allocate(std::size_t nbytes);
  void* allocate(std::size_t nbytes, cuda::Stream stream);
  void free(void* pointer);
  void record_stream(void* pointer, cuda::Stream stream);
  // Bytes of the pool that are in use, and that have physical memory; without the lock.
  [[nodiscard]] Bytes used() const { return Bytes(used_.load(std::memory_order_relaxed)); }
  [[nodiscard]] Bytes reserved() const { return Bytes(reserved_.load(std::memory_order_relaxed)); }

  // ---- under the lock ----
  // Memory for copies that are kept while a kernel runs. Throws OutOfBudget.
  void* allocate_aside(Bytes size, const EngineLock&);
  void free_aside(const void* memory, const EngineLock&);
  // Updates used() and reserved(), on a GPU.
  void publish_use(const EngineLock&);
  // Kernels are numbered. A block's serial: number of the last kernel begun before its allocation.
  std::uint64_t next_serial(const EngineLock&) { return ++serial_; }
  [[nodiscard]] std::uint64_t serial(BlockId block, const EngineLock&) const {
    return block_serials_[block.index()];
  }
  // most_held: the largest number of bytes that kernels held since reset_held.
  void reset_held(const EngineLock&) { most_held_ = held_ = 0; }
  [[nodiscard]] Bytes most_held(const EngineLock&) const { return Bytes(most_held_); }

 private:
  BlockId take_block(std::size_t nbytes);
  [[nodiscard]] BlockId block_at(const void* pointer) const;
  template <class Take>
  void* allocate_in_turns(Take&& take);
  [[noreturn]] void throw_no_room(const OutOfBudget& error) const;

  const Neighbors to_;
  std::vector<std::uint64_t> block_serials_;  // by block
  std::uint64_t serial_ = 0;
  std::int64_t held_ = 0;
  std::int64_t most_held_ = 0;
  std::atomic<std::int64_t> used_{0};
  std::atomic<std::int64_t> reserved_{0};
};

}  // namespace recoup::detail
