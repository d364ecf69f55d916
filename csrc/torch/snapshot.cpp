#include "csrc/torch/snapshot.h"

#include <cstring>
#include <utility>

namespace recoup::detail {

Snapshot::Snapshot(c10::StorageImpl& storage, Session& session, const Session::Lock& lock)
    : memory_(storage._mutable_data_ptr_no_checks().get()),
      size_(storage.nbytes()),
      gpu_(session.gpu(lock)) {
  if (gpu_ != nullptr) {
    copy_ = gpu_->keep_copy(memory_, size_);
  } else if (size_ > 0) {
    copy_ = session.allocate_aside(Bytes(static_cast<std::int64_t>(size_)), lock);
    std::memcpy(copy_, memory_, size_);
  }
}

Snapshot::Snapshot(Snapshot&& other) noexcept
    : memory_(other.memory_),
      size_(other.size_),
      gpu_(other.gpu_),
      copy_(std::exchange(other.copy_, nullptr)) {}

void Snapshot::drop(Session& session, const Session::Lock& lock) noexcept {
  void* const copy = std::exchange(copy_, nullptr);
  if (copy == nullptr) {
    return;
  }
  if (gpu_ != nullptr) {
    Gpu::drop_copy(copy);
  } else {
    session.free_aside(copy, lock);
  }
}

void Snapshot::restore() const noexcept {
  if (gpu_ != nullptr) {
    gpu_->put_back(memory_, copy_, size_);
  } else if (copy_ != nullptr) {
    std::memcpy(memory_, copy_, size_);
  }
}

}  // namespace recoup::detail
