#include "csrc/torch/gpu/kept_copies.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "csrc/torch/backend/bypass.h"
#include "csrc/torch/gpu/gpus.h"

namespace recoup::detail {
namespace {

// As PyTorch's allocator rounds.
Bytes rounded(Bytes size) {
  constexpr std::int64_t kUnit = 512;
  return Bytes((size.count() + kUnit - 1) / kUnit * kUnit);
}

}  // namespace

void* KeptCopies::take(Bytes size, cuda::Stream stream) {
  if (size <= Bytes(0)) {
    return nullptr;
  }
  const Bypass bypass;
  const std::lock_guard lock(mutex_);
  const Bytes needed = rounded(size);
  const bool first = kept_ == 0;
  asked_ = first ? needed : asked_ + needed;
  most_ = std::max(most_, asked_);
  if (first) {
    fit_buffer(stream);
  }
  void* memory = nullptr;
  if (stream == stream_ && needed <= size_ - used_) {
    memory = buffer_ + used_.count();
    used_ += needed;
  } else {
    memory = gpus().outside().allocate(size, device_, stream);
  }
  kept_ += memory != nullptr ? 1 : 0;
  return memory;
}

// To be called while no copy is kept. PyTorch's allocator gives the former buffer to later work of
// its stream only, so work on it need not be finished.
void KeptCopies::fit_buffer(cuda::Stream stream) {
  used_ = Bytes(0);
  if (stream == stream_ && most_ <= size_) {
    return;
  }
  free_buffer();
  buffer_ = static_cast<char*>(gpus().outside().allocate(most_, device_, stream));
  size_ = buffer_ != nullptr ? most_ : Bytes(0);
  stream_ = stream;
}

void KeptCopies::drop(void* memory) {
  const std::lock_guard lock(mutex_);
  --kept_;
  if (!in_buffer(memory)) {
    gpus().outside().free(memory);
  }
}

// Does not wait for a thread in take(), which will keep a copy.
void KeptCopies::release_buffer() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock.owns_lock() && kept_ == 0) {
    free_buffer();
  }
}

void KeptCopies::free_buffer() {
  size_ = used_ = Bytes(0);
  if (void* const buffer = std::exchange(buffer_, nullptr)) {
    gpus().outside().free(buffer);
  }
}

}  // namespace recoup::detail
