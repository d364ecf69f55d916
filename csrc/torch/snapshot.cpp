#include "csrc/torch/snapshot.h"

#include <cstring>
#include <utility>

namespace recoup::detail {

Snapshot::Snapshot(c10::StorageImpl& storage, Gpu* gpu)
    : memory_(storage._mutable_data_ptr_no_checks().get()), size_(storage.nbytes()), gpu_(gpu) {
  if (gpu_ != nullptr) {
    device_copy_ = gpu_->keep_copy(memory_, size_);
  } else {
    const auto* const data = static_cast<const char*>(memory_);
    bytes_.assign(data, data + size_);
  }
}

Snapshot::Snapshot(Snapshot&& other) noexcept
    : memory_(other.memory_),
      size_(other.size_),
      gpu_(other.gpu_),
      bytes_(std::move(other.bytes_)),
      device_copy_(std::exchange(other.device_copy_, nullptr)) {}

Snapshot::~Snapshot() {
  if (device_copy_ != nullptr) {
    Gpu::drop_copy(device_copy_);
  }
}

void Snapshot::restore() const noexcept {
  if (gpu_ != nullptr) {
    gpu_->put_back(memory_, device_copy_, size_);
  } else {
    std::memcpy(memory_, bytes_.data(), size_);
  }
}

}  // namespace recoup::detail
