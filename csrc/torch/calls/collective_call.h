// Effects of a collective, or of a wait for one, on the tensors in its frame: Note [In collective].
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <vector>

#include "csrc/torch/frames/kernel_frame.h"
#include "csrc/torch/ops/in_flight.h"

namespace recoup::detail {

// Lives around the kernel of an op of c10d, within its frame. When the kernel has returned, what
// the frame holds is pinned until the Work has finished. If the kernel fails, or returns no Work
// where its schema has one, the end is unknown, and the pins are kept.
class CollectiveCall {
 public:
  explicit CollectiveCall(const KernelFrame& frame) : frame_(frame) {}
  ~CollectiveCall();
  CollectiveCall(const CollectiveCall&) = delete;
  CollectiveCall& operator=(const CollectiveCall&) = delete;

  void returned(const c10::OperatorHandle& op, const torch::jit::Stack& stack);

 private:
  const KernelFrame& frame_;
  bool returned_ = false;
};

// Lives around the kernel of wait_tensor. The registry of functional collectives is the last owner
// of their works. It drops those that it has waited for.
class WaitCall {
 public:
  explicit WaitCall(const KernelFrame& frame);
  void returned() const;

 private:
  std::vector<WorkId> works_;
};

}  // namespace recoup::detail
