#include "csrc/cuda/allocator.h"

#include <stdexcept>
#include <utility>

#include "csrc/base/strings.h"
#include "csrc/cuda/error.h"

namespace recoup::detail::cuda {

Allocator::Allocator(std::unique_ptr<Runtime> runtime) : runtime_(std::move(runtime)) {}

Cache& Allocator::cache(int device) {
  const auto found = caches_.find(device);
  if (found != caches_.end()) {
    return found->second;
  }
  const int count = runtime_->device_count();
  if (device < 0 || device >= count) {
    throw CudaError(str_cat("there is no device cuda:", device, "; there are ", count));
  }
  return caches_.try_emplace(device, *runtime_, device).first->second;
}

Scope* Allocator::scope(int device) {
  const std::lock_guard lock(mutex_);
  const auto found = scopes_.find(device);
  return found == scopes_.end() ? nullptr : found->second;
}

void* Allocator::allocate(Bytes size, int device, Stream stream) {
  if (runtime_->capturing(stream)) {
    throw CudaError(
        "memory was asked for while a CUDA graph is captured; recoup's allocator cannot give any "
        "that stays in place: capture before importing recoup, or not at all");
  }
  if (Scope* const found = scope(device); found != nullptr && found->wants(size)) {
    return found->allocate(size, stream);
  }
  const std::lock_guard lock(mutex_);
  return cache(device).allocate(size, stream);
}

void Allocator::free(void* memory, int device) {
  if (memory == nullptr) {
    return;
  }
  if (Scope* const found = scope(device); found != nullptr && found->owns(memory)) {
    found->free(memory);
    return;
  }
  const std::lock_guard lock(mutex_);
  cache(device).free(memory);
}

void Allocator::record_stream(void* memory, int device, Stream stream) {
  if (Scope* const found = scope(device); found != nullptr && found->owns(memory)) {
    found->record_stream(memory, stream);
    return;
  }
  const std::lock_guard lock(mutex_);
  cache(device).record_stream(memory, stream);
}

void Allocator::empty_cache() {
  const std::lock_guard lock(mutex_);
  for (auto& [device, cache] : caches_) {
    cache.empty();
  }
}

void Allocator::enter(int device, Scope& scope) {
  const std::lock_guard lock(mutex_);
  cache(device);  // there is such a device
  if (!scopes_.emplace(device, &scope).second) {
    throw std::logic_error(str_cat("cuda:", device, " has a budget already"));
  }
}

void Allocator::leave(int device) {
  const std::lock_guard lock(mutex_);
  scopes_.erase(device);
}

Allocator::Usage Allocator::usage(int device) {
  const std::lock_guard lock(mutex_);
  const Cache& found = cache(device);
  return {.reserved = found.reserved(), .used = found.used()};
}

void Allocator::check() {
  const std::lock_guard lock(mutex_);
  for (const auto& [device, cache] : caches_) {
    cache.check();
  }
}

}  // namespace recoup::detail::cuda
