// A scope on a GPU for the allocator, and the memory that it leaves when its session has ended.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "csrc/cuda/scopes.h"
#include "csrc/torch/backend/arena.h"
#include "csrc/torch/backend/program_memory.h"

namespace recoup::detail {

class GpuScope final : public cuda::Scope {
 public:
  GpuScope(ProgramMemory& live, const Arena& arena);

  [[nodiscard]] bool wants(Bytes size) const override;
  [[nodiscard]] void* allocate(Bytes size, cuda::Stream stream) override;
  [[nodiscard]] bool owns(const void* memory) const override {
    return memory >= begin_ && memory < end_;
  }
  [[nodiscard]] bool empty() const override;
  [[nodiscard]] Bytes reserved() const override;
  [[nodiscard]] Bytes used() const override;
  [[nodiscard]] std::optional<OutsideSegment> left_segment() const override;
  [[nodiscard]] bool capturing() const override;
  void free(void* memory) override;
  void record_stream(void* memory, cuda::Stream stream) override;

  // The session ends: when this returns, no thread is in a call of it, and no later call reaches
  // it.
  void close();
  // To be called next: takes over the arena and the blocks that are still in use.
  void retire(std::unique_ptr<Arena> arena, std::span<const BlockView> blocks);

 private:
  // Calls act(memory); returns false without a call if the session has ended.
  template <class Act>
  bool with_live(Act&& act) const;
  [[nodiscard]] Bytes count(Bytes (ProgramMemory::*of_live)() const,
                            Bytes (RetiredArena::*of_rest)() const) const;

  const void* begin_;
  const void* end_;
  std::atomic<ProgramMemory*> live_;
  mutable std::atomic<int> inside_{0};
  mutable std::mutex mutex_;  // guards the members below; no code that may call back runs under it
  std::optional<RetiredArena> retired_;
  std::vector<void*> freed_early_;  // after close(), before retire()
};

}  // namespace recoup::detail
