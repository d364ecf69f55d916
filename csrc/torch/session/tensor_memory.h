// Memory of a session's pool for kernels and for the program.
#pragma once

#include <c10/core/Allocator.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "csrc/engine/program/engine.h"
#include "csrc/torch/backend/program_memory.h"
#include "csrc/torch/overflow/overflow_results.h"
#include "csrc/torch/session/delay.h"
#include "csrc/torch/session/graph_blocks.h"
#include "csrc/torch/storages/engine_lock.h"
#include "csrc/torch/storages/storages.h"
#include "csrc/torch/storages/tensor_device.h"
#include "recoup/errors.h"
#include "recoup/types.h"

namespace recoup::detail {

class TensorMemory final : public ProgramMemory {
 public:
  // The references must outlive this object. `session` identifies the session in its errors.
  struct Neighbors {
    Engine& engine;
    TensorDevice& device;
    Storages& storages;
    EngineMutex& mutex;
    StorageRecords& records;
    const Delay& delay;
    const void* session;
  };
  explicit TensorMemory(const Neighbors& neighbors)
      : to_(neighbors), graph_blocks_(neighbors.records) {}

  // ---- for any thread; these take the lock ----
  [[nodiscard]] bool in_scope(std::size_t nbytes) const override;
  // Memory for a kernel that runs in its call. Throws PoolOutOfMemory.
  c10::DataPtr allocate(std::size_t nbytes);
  void* allocate(std::size_t nbytes, cuda::Stream stream) override;
  void free(void* pointer) override;
  void record_stream(void* pointer, cuda::Stream stream) override;
  // Without the lock.
  [[nodiscard]] Bytes used() const override { return Bytes(used_.load(std::memory_order_relaxed)); }
  [[nodiscard]] Bytes reserved() const override {
    return Bytes(reserved_.load(std::memory_order_relaxed));
  }

  [[nodiscard]] bool capturing() const override {
    return capturing_.load(std::memory_order_relaxed);
  }

  // ---- under the lock ----
  // Note [Captured graphs]. Reserves memory for requests on streams that are not captured. Throws
  // OutOfBudget.
  void begin_capture(const EngineLock&);
  // Returns what such requests have got.
  [[nodiscard]] std::vector<GraphBlock> end_capture(const EngineLock&);
  [[nodiscard]] GraphBlocks& graph_blocks(const EngineLock&) { return graph_blocks_; }
  // Memory for copies that are kept while a kernel runs. Throws OutOfBudget.
  void* allocate_aside(Bytes size, const EngineLock&);
  void free_aside(const void* memory, const EngineLock&);
  // The kernel has freed overflow memory.
  void free_overflow(OverflowKey key, Bytes size, const EngineLock&);
  // Updates used() and reserved(), if the program's allocator asks for them.
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
  void count_held(std::size_t nbytes);
  BlockId take_block(std::size_t nbytes);
  [[nodiscard]] void* take_spare(std::size_t nbytes);
  [[nodiscard]] c10::DataPtr from_pool(std::size_t nbytes);  // throws OutOfBudget
  // Throws OutOfBudget.
  [[nodiscard]] c10::DataPtr from_overflow(const OverflowResults& overflow, std::size_t nbytes);
  [[nodiscard]] BlockId block_at(const void* pointer) const;
  template <class Take>
  void* take_in_turns(Take&& take);  // throws OutOfBudget
  template <class NoRoom, class Take>
  void* allocate_in_turns(Take&& take);
  template <class NoRoom>
  [[noreturn]] void throw_no_room(const OutOfBudget& error) const;

  const Neighbors to_;
  std::vector<std::uint64_t> block_serials_;  // by block
  std::uint64_t serial_ = 0;
  std::int64_t held_ = 0;
  std::int64_t most_held_ = 0;
  std::atomic<std::int64_t> used_{0};
  std::atomic<std::int64_t> reserved_{0};
  std::atomic<bool> capturing_{false};
  std::vector<BlockId> spare_;     // of a capture under way
  std::vector<GraphBlock> given_;  // former spares
  GraphBlocks graph_blocks_;
};

}  // namespace recoup::detail
