// HostRoute: PyTorch's allocator on the CPU, which asks for the pool of the session in force.
#pragma once

#include <c10/core/CPUAllocator.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <utility>

#include "csrc/torch/backend/memory_route.h"

namespace recoup::detail {

class HostRoute final : public MemoryRoute {
 public:
  explicit HostRoute(c10::Allocator& allocator_of_cpu) : allocator_of_cpu_(allocator_of_cpu) {}

  void enter() override {
    c10::SetCPUAllocator(&allocator_of_cpu_, std::numeric_limits<std::uint8_t>::max());
  }
  // The CPU's allocator stays: it forwards all requests, and only its raw_deallocate can tell who
  // owns the memory that it gets (oneDNN calls it long after).
  void leave() override {}
  void close() override {}
  void retire(std::unique_ptr<Arena> arena, std::span<const BlockView> blocks) override {
    detail::retire(std::move(arena), blocks);
  }

 private:
  c10::Allocator& allocator_of_cpu_;
};

}  // namespace recoup::detail
