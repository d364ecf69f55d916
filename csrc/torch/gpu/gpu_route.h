// GpuRoute: PyTorch's decorated allocator on a GPU, which asks for the scope in force.
#pragma once

#include <memory>
#include <span>
#include <utility>

#include "csrc/torch/backend/memory_route.h"
#include "csrc/torch/gpu/gpu_scope.h"
#include "csrc/torch/gpu/gpus.h"
#include "csrc/torch/gpu/kept_copies.h"

namespace recoup::detail {

class GpuRoute final : public MemoryRoute {
 public:
  GpuRoute(int device, std::shared_ptr<GpuScope> scope, KeptCopies& copies)
      : device_(device), scope_(std::move(scope)), copies_(copies) {}

  void enter() override { gpus().enter(device_, scope_); }
  void leave() override {
    copies_.release_buffer();
    gpus().leave(device_);
  }
  void close() override { scope_->close(); }
  void retire(std::unique_ptr<Arena> arena, std::span<const BlockView> blocks) override {
    scope_->retire(std::move(arena), blocks);
    gpus().leave(device_);  // again: the scope may be empty now
  }

 private:
  int device_;
  std::shared_ptr<GpuScope> scope_;
  KeptCopies& copies_;
};

}  // namespace recoup::detail
