// The bytes of a small storage as they were before a kernel that may have to be taken back.
#pragma once

#include <c10/core/StorageImpl.h>

#include <cstddef>
#include <vector>

#include "csrc/torch/gpu.h"

namespace recoup::detail {

// On a GPU they are kept there, in memory outside of the budget, and nobody waits.
class Snapshot {
 public:
  // `gpu`: of the storage's device, null on the CPU; it must outlive the snapshot.
  Snapshot(c10::StorageImpl& storage, Gpu* gpu);
  ~Snapshot();
  Snapshot(Snapshot&& other) noexcept;
  Snapshot& operator=(Snapshot&&) = delete;

  // Puts them back to where they were.
  void restore() const noexcept;

 private:
  void* memory_;
  std::size_t size_;
  Gpu* gpu_;
  std::vector<char> bytes_;      // on the CPU
  void* device_copy_ = nullptr;  // on a GPU
};

}  // namespace recoup::detail
